//! The longer help texts.

use shared::data::registry;

/// Appended to the help of every command that reads samples.
pub(super) fn data() -> String {
    format!(
        "Data:\n  A directory in one of these formats; the client finds out which and says so:\n{}",
        registry::help()
    )
}

/// Appended to the long help of the program.
pub(super) fn after_long_help() -> String {
    [SESSION, &data(), STATE].join("\n\n")
}

pub(super) const ABOUT: &str = "Take part in federated learning with the data of this device";

pub(super) const LONG_ABOUT: &str = "\
Take part in federated learning with the data of this device.

The client connects to an aggregator over QUIC, receives a model and what to do with it, trains on the samples in \
its data directory, and sends back what changed. The samples never leave the device. It has no settings of its own \
for the training: all of them come from the run that it joins.";

const SESSION: &str = "\
A typical session:
  On the lab's machine:
      aggregator serve run.toml
      aggregator ticket --uses 20
  On each device, with the ticket that this has printed; the next start needs none:
      edge-client join fed1... --data ~/digits
      edge-client join --data ~/digits
  Ctrl-C leaves the run; the same command joins again and goes on with what was finished. When the run is over, \
copy its model.safetensors to the device and use it:
      edge-client predict --model model.safetensors --data ~/digits
  If the run personalises, the device has a model of its own already, which answers without a connection:
      edge-client predict --personal --data ~/digits
      edge-client evaluate --data ~/digits";

const STATE: &str = "\
State:
  $XDG_STATE_HOME/edge-client, or ~/.local/state/edge-client, or the directory named with --state. It holds
      identity          this client's private key; keep it secret; without it, the device counts as a new one
      server            the one server that this client trusts: its key and its addresses
      outbox/           a finished update that the server has not confirmed yet
      download          the part of a model that has arrived, if that takes more than a second: the next start goes on with it
      runs/             what the algorithm keeps between the rounds of a run, and the secrets that hide its updates, for the 8 \
runs used last; older ones go first
      personal/         personal models, for the 8 runs that made one last; they never leave the device
      lock              held while a client runs: each client needs a state directory of its own

Exit codes:
  0  the run is over; predictions were made
  1  an unexpected failure, probably a bug of this program
  2  the arguments make no sense
  3  something on this device has to be fixed: data, arguments, state directory, model file, disk, network; or the run needs more \
memory than this device allows (--max-memory), or hides updates less (--secure-only) or gives more of them \
away (--private-only) than it asks for
  4  the server has to be fixed, or its operator asked: it refuses this client, is not the one that this client trusts, or its \
run cannot be carried out here
  5  the run is over, and the server rejected the updates of this client
  6  this device declines the run: it uses what this version of edge-client does not know (update it)
  130, 143  stopped by Ctrl-C or SIGTERM, once all is safe, or at once when it comes a second time (the same command joins again); \
the process ends by that signal, so that a shell's loop stops as well
A device whose data can never fit the run leaves at once, with 3. If the run is over and no update counted, the last round \
decides: 5 if its update was rejected, otherwise 1, 3 or 4 for the one who can fix what failed. The events \"failed\" and \
\"unfit\" of --json name it as \"blame\": owner or machine (3), server (4), program (1).
A bug that the release for devices cannot survive ends it with a message and a signal (SIGABRT, 134 in a shell). Have it \
restarted, for example with Restart=on-abnormal in a unit of systemd: it joins again.

Safety:
  A crash loses nothing that was trained. Of a run whose algorithm keeps something on the device (SCAFFOLD, MOON), every update \
is synced to the disk before it is sent, so that a power failure cannot separate what the server has from what is kept here. Of any \
other run, what took at least a second to train is synced at once; what took less may be lost by a power failure and is then \
trained again, unless the server has it: syncing every round would wear out memory cards.
  If device and server do not agree on what is kept, since either was restored from a backup, both say so.";
