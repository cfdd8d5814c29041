//! Error feedback: what an update leaves out is added to the client's next one.
//!
//! Stich, Cordonnier, Jaggi: *Sparsified SGD with Memory*, NeurIPS 2018 (arXiv 1809.07599), Algorithm 1; with local steps Basu, Data,
//! Karakus, Diggavi: *Qsparse-local-SGD*, NeurIPS 2019 (arXiv 1906.02367), Algorithm 1.
//!
//! ```text
//! u_t = delta_t + m_t            m_0 = 0
//! s_t = the k largest of each tensor of u_t, as the server reads them
//! m_{t+1} = u_t - s_t            s_0 + ... + s_t + m_{t+1} = delta_0 + ... + delta_t
//! ```
//!
//! The server rejects an update with a value beyond `update.max-abs`. What is learned is mostly within that, and what was left out of many
//! rounds may not be; such an update would be rejected with all that follow, since `m` stays as it was. So `m_t` is added as far as a
//! value is no larger than half of that bound, or than what was learned in this round, and the rest stays in `m_{t+1}`. Half of it leaves
//! room for what rounding to 16, 8 or 4 bits adds. An update that is too large by itself is rejected as without `m`.
//!
//! `m` is client state, so that t counts the rounds in which the server accepted the client's update: what is learned in another one is
//! lost as without it, and `m` stays. A round that ends without a result after it accepted an update loses that update, which holds what
//! was left out of earlier ones and sent now; so does a rule that shortens updates lose what it takes of one. The rounding of `update.precision` is part of what is left out.

use models::Array;

use super::{Client, TrainError};
use crate::outgoing;
use crate::record::Record;

/// What the client sends of its update in a run with `update.top-k`, zeros where it sends nothing; without that, the update. What is
/// left out is kept.
///
/// # Errors
/// [`TrainError::Local`] if what was left out before is not of this update.
pub(super) fn apply(client: &mut Client<'_>, mut update: Record) -> Result<Record, TrainError> {
    if client.spec.update.top_k.is_none() {
        return Ok(update);
    }
    let mut kept = client.take_kept();
    let before = std::mem::replace(&mut kept.left_out, outgoing::incomplete(&update.tensors, client.spec));
    let most = client.spec.update.max_abs as f32 / 2.0;
    for (name, before) in &before {
        let of_this_update = |array: &&mut Array| array.shape() == before.shape();
        let learned = update.tensors.get_mut(name).filter(of_this_update);
        let Some((learned, all)) = learned.zip(kept.left_out.get_mut(name)) else {
            return Err(TrainError::Local(format!("what was left out of `{name}` is not of this update")));
        };
        let values = learned.values_mut().iter_mut().zip(all.values_mut());
        for ((value, all), before) in values.zip(before.values()) {
            *all = *value + before;
            let most = most.max(value.abs());
            *value = if all.abs() > most { most.copysign(*all) } else { *all };
        }
    }
    drop(before);
    outgoing::keep_largest(&mut update, client.spec);
    let read = client.received(update.clone())?;
    for (name, left_out) in kept.left_out.iter_mut() {
        let sent = read.tensors.get(name).expect("what is read has the tensors of what is sent").values();
        left_out.values_mut().iter_mut().zip(sent).for_each(|(value, sent)| *value -= sent);
    }
    client.restore(kept);
    Ok(update)
}
