//! The update of a parameter by stochastic gradient descent, in place and in one pass.

use pulp::Arch;

/// `w <- w - rate (g + decay w)`
pub(crate) fn descend(w: &mut [f32], g: &[f32], rate: f32, decay: f32) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (w, g) in w.iter_mut().zip(g) {
                *w -= rate * (g + decay * *w);
            }
        },
    );
}

/// `v <- momentum v + (g + decay w)`, then `w <- w - rate v`
pub(crate) fn descend_with_momentum(
    w: &mut [f32],
    v: &mut [f32],
    g: &[f32],
    rate: f32,
    momentum: f32,
    decay: f32,
) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
                *v = momentum * *v + (g + decay * *w);
                *w -= rate * *v;
            }
        },
    );
}
