//! Faults: a hook before every disk operation of the store that changes something, for tests of power failures.
//!
//! It exists with the feature `faults` alone, which released programs do not have.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// A disk operation that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// A directory and its missing parents are created.
    CreateDir(&'a Path),
    /// A file is created, or emptied, and written.
    Write(&'a Path),
    /// A file or directory gets another name.
    Rename(&'a Path, &'a Path),
    /// A file is removed, if it is there.
    RemoveFile(&'a Path),
    /// A directory is removed with everything in it, if it is there.
    RemoveDir(&'a Path),
    /// The bytes of a file, or the entries of a directory, are synced. Nothing is really synced while there is a hook: that would take
    /// time and prove nothing.
    Sync(&'a Path),
}

/// Is called before each operation; an error fails the operation, which is then not made.
pub type Hook = Rc<dyn Fn(Operation<'_>) -> io::Result<()>>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Does `work` on this thread with `hook` before each disk operation of the stores that it uses.
pub fn with<T>(hook: Hook, work: impl FnOnce() -> T) -> T {
    let before = HOOK.replace(Some(hook));
    let done = work();
    HOOK.set(before);
    done
}

/// Whether there is a hook.
pub(super) fn are_played() -> bool {
    HOOK.with_borrow(Option::is_some)
}

/// Asks the hook, if there is one.
pub(super) fn before(operation: Operation<'_>) -> io::Result<()> {
    let hook = HOOK.with_borrow(Clone::clone);
    hook.map_or(Ok(()), |hook| hook(operation))
}
