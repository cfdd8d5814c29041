use proptest::prelude::*;

use super::*;
use crate::kernels::reference::Case;

/// The output, the gradient of the weights, and that of the images.
fn run(depthwise: &mut Depthwise, case: &Case, channels: usize) -> [Vec<f32>; 3] {
    // NaN shows values that are read before they are written.
    let area = case.geometry.kernel * case.geometry.kernel;
    let (mut y, mut dx) = (vec![f32::NAN; case.dy.len()], vec![f32::NAN; case.x.len()]);
    let mut dweight = vec![f32::NAN; channels * area];
    depthwise.forward(&case.weight, &case.x, &mut y, case.n, |_, _| {});
    depthwise.backward(&case.weight, &case.x, &case.dy, case.n, &mut dweight, Some(&mut dx));
    [y, dweight, dx]
}

/// A depthwise convolution of `n` images is one of `n * channels` images of one channel, but for the kernels.
fn check(
    (channels, height, width): (usize, usize, usize),
    kernel: usize,
    stride: usize,
    padding: usize,
    n: usize,
) {
    let whole = Case::new((channels, height, width), channels, kernel, stride, padding, n);
    let area = kernel * kernel;
    let mut depthwise = Depthwise::new(whole.geometry);
    let case = Case { weight: whole.weight[..channels * area].to_vec(), ..whole };
    let found = run(&mut depthwise, &case, channels);
    // Of each channel on its own.
    for channel in 0..channels {
        let of = |values: &[f32], size: usize| -> Vec<f32> {
            values.chunks(size).skip(channel).step_by(channels).flatten().copied().collect()
        };
        let (plane, places) = (height * width, case.geometry.places());
        let single = Case {
            geometry: Geometry { channels: 1, ..case.geometry },
            out: 1,
            n,
            weight: of(&case.weight, area),
            x: of(&case.x, plane),
            dy: of(&case.dy, places),
        };
        let (y, dweight, dx) = single.expected();
        y.assert_near("y", &of(&found[0], places));
        dweight.assert_near("the weights' gradient", &of(&found[1], area));
        dx.assert_near("the images' gradient", &of(&found[2], plane));
    }
    assert_eq!(run(&mut depthwise, &case, channels), found, "a later batch depends on an earlier one");
}

proptest! {
    #[test]
    fn any_sizes(
        image in (1..5usize, 1..12usize, 1..20usize),
        kernel in 1..6usize, stride in 1..4usize, padding in 0..4usize, n in 1..4usize,
    ) {
        prop_assume!(image.1.min(image.2) + 2 * padding >= kernel);
        check(image, kernel, stride, padding, n);
    }
}

#[test]
fn the_models_sizes() {
    for (image, kernel, stride) in [
        ((32, 48, 48), 3, 1),
        ((96, 48, 48), 3, 2),
        ((144, 24, 24), 3, 2),
        ((960, 3, 3), 3, 1),
        ((72, 12, 12), 5, 2),
        ((120, 7, 7), 5, 1),
    ] {
        check(image, kernel, stride, kernel / 2, 2);
    }
}

#[test]
fn planes_are_finished_when_they_are_complete() {
    let case = Case::new((3, 5, 4), 3, 3, 1, 1, 2);
    let mut y = vec![f32::NAN; case.dy.len()];
    Depthwise::new(case.geometry).forward(&case.weight[..27], &case.x, &mut y, 2, |channel, plane| {
        assert!(plane.len() == 20 && plane.iter().all(|value| value.is_finite()));
        plane.fill(channel as f32);
    });
    let expected: Vec<f32> = (0..120).map(|index| (index / 20 % 3) as f32).collect();
    assert_eq!(y, expected);
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for (image, kernel, stride) in [((40, 24, 24), 3, 1), ((64, 20, 21), 5, 2)] {
        let case = Case::new(image, image.0, kernel, stride, kernel / 2, 9);
        let case = Case { weight: case.weight[..image.0 * kernel * kernel].to_vec(), ..case };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| run(&mut Depthwise::new(case.geometry), &case, image.0))
        };
        let one = with(1);
        assert_eq!(with(2), one);
        assert_eq!(with(3), one);
    }
}

#[test]
fn an_empty_batch_has_no_gradient() {
    let case = Case::new((2, 5, 5), 2, 3, 1, 1, 0);
    let case = Case { weight: case.weight[..18].to_vec(), ..case };
    let [y, dweight, dx] = run(&mut Depthwise::new(case.geometry), &case, 2);
    assert!(y.is_empty() && dx.is_empty() && dweight.iter().all(|value| *value == 0.0));
}
