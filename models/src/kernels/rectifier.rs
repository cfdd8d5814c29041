//! The rectifier, `max(x, 0)`, in place.

use pulp::Arch;

/// `y <- max(y, 0)`. What is not a number stays so.
pub(crate) fn rectify(y: &mut [f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || y.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y }),
    );
}

/// Sets the gradient to 0 where the rectifier gave 0.
pub(crate) fn mask(gradient: &mut [f32], y: &[f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (gradient, y) in gradient.iter_mut().zip(y) {
                *gradient = if *y > 0.0 { *gradient } else { 0.0 };
            }
        },
    );
}
