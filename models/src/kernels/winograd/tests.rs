use proptest::prelude::*;

use super::super::geometry::Geometry;
use super::{Winograd, Workspace, pays};

fn geometry(channels: usize, (height, width): (usize, usize), kernel: usize, padding: usize) -> Geometry {
    Geometry::of(&[channels, height, width], kernel, 1, padding)
}

fn winograd(geometry: Geometry, out: usize) -> Winograd {
    Winograd::new(geometry, out, &Workspace::default()).unwrap()
}

/// Pseudorandom numbers in `[-1, 1)`.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Calls `term(y, w, x)` with the indices of every product in a convolution.
fn terms(g: Geometry, out: usize, n: usize, mut term: impl FnMut(usize, usize, usize)) {
    for (image, o, i) in
        (0..n).flat_map(|n| (0..out).flat_map(move |o| (0..g.channels).map(move |i| (n, o, i))))
    {
        for (row, column) in (0..g.rows).flat_map(|r| (0..g.columns).map(move |c| (r, c))) {
            for (down, across) in (0..g.kernel).flat_map(|d| (0..g.kernel).map(move |a| (d, a))) {
                let (r, c) =
                    ((row + down).wrapping_sub(g.padding), (column + across).wrapping_sub(g.padding));
                if r < g.height && c < g.width {
                    let y = ((image * out + o) * g.rows + row) * g.columns + column;
                    let w = ((o * g.channels + i) * g.kernel + down) * g.kernel + across;
                    term(y, w, ((image * g.channels + i) * g.height + r) * g.width + c);
                }
            }
        }
    }
}

/// The largest difference from a sum, relative to the sum of the magnitudes of its terms; or, for sums of few
/// terms, relative to the largest of these: the terms of a tile share their errors.
fn error(values: &[f32], expected: &[(f64, f64)], largest: bool) -> f64 {
    assert_eq!(values.len(), expected.len());
    let most = expected.iter().fold(0.0, |most, (_, magnitude)| magnitude.max(most));
    let relative = |(value, (sum, magnitude)): (&f32, &(f64, f64))| {
        assert!(value.is_finite());
        let error = (f64::from(*value) - sum).abs();
        if error == 0.0 { 0.0 } else { error / if largest { most } else { *magnitude } }
    };
    values.iter().zip(expected).map(relative).fold(0.0, f64::max)
}

/// The errors of the result and of the gradients for the weights and the images.
fn errors(mut winograd: Winograd, n: usize, largest: bool) -> [f64; 3] {
    let (g, out) = (winograd.geometry, winograd.out);
    let (x, weight) = (noise(n * g.image(), 1), noise(out * g.taps(), 2));
    let dy = noise(n * out * g.places(), 3);
    let (mut y, mut dweight, mut dx) =
        (vec![f32::NAN; dy.len()], vec![f32::NAN; weight.len()], vec![f32::NAN; x.len()]);
    winograd.forward(&weight, &x, &mut y, n, |_| ());
    winograd.backward(&weight, &x, &dy, n, &mut dweight, Some(&mut dx));
    let [mut for_y, mut for_w, mut for_x] =
        [y.len(), weight.len(), x.len()].map(|length| vec![(0.0, 0.0); length]);
    let add = |(sum, magnitude): &mut (f64, f64), term: f64| {
        *sum += term;
        *magnitude += term.abs();
    };
    terms(g, out, n, |at_y, at_w, at_x| {
        let (dy, w, x) = (f64::from(dy[at_y]), f64::from(weight[at_w]), f64::from(x[at_x]));
        add(&mut for_y[at_y], w * x);
        add(&mut for_w[at_w], dy * x);
        add(&mut for_x[at_x], dy * w);
    });
    [error(&y, &for_y, largest), error(&dweight, &for_w, largest), error(&dx, &for_x, largest)]
}

#[test]
fn results_and_gradients_are_those_of_a_convolution() {
    for (channels, out, size, kernel, padding, n) in [
        (16, 16, (8, 8), 3, 1, 2),
        (32, 64, (14, 14), 5, 2, 3),
        (17, 5, (7, 9), 3, 0, 2),
        (64, 48, (4, 4), 3, 1, 70),
    ] {
        let errors = errors(winograd(geometry(channels, size, kernel, padding), out), n, false);
        assert!(errors.iter().all(|&error| error < 2e-6), "{channels} -> {out}, kernel {kernel}: {errors:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Images smaller and larger than tiles, with all borders, channels that do not fill vectors, and groups
    /// of which the last is not full.
    #[test]
    fn sizes_that_fit_no_tile((channels, out) in (1usize..20, 1usize..20),
                              (n, group) in (1usize..5, 1usize..5),
                              size in (1usize..11, 1usize..11),
                              kernel in prop_oneof![Just(3usize), Just(5)],
                              padding in 0usize..5) {
        prop_assume!(size.0.min(size.1) + 2 * padding >= kernel);
        let mut winograd = winograd(geometry(channels, size, kernel, padding), out);
        winograd.group = group;
        let errors = errors(winograd, n, true);
        prop_assert!(errors.iter().all(|&error| error < 5e-6), "{:?}", errors);
    }
}

/// The result and both gradients, in a pool of some threads.
fn in_pool(threads: usize, g: Geometry, out: usize, n: usize) -> [Vec<f32>; 3] {
    let (x, weight, dy) = (noise(n * g.image(), 1), noise(out * g.taps(), 2), noise(n * out * g.places(), 3));
    let [mut y, mut dweight, mut dx] = [&dy, &weight, &x].map(|like| vec![f32::NAN; like.len()]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let mut winograd = winograd(g, out);
        winograd.forward(&weight, &x, &mut y, n, |_| ());
        winograd.backward(&weight, &x, &dy, n, &mut dweight, Some(&mut dx));
    });
    [y, dweight, dx]
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    // Several groups of many images, of few, and one; weights shared out by blocks, and products in pieces.
    for (channels, out, size, kernel, n) in
        [(16, 16, (32, 32), 3, 27), (128, 136, (16, 16), 3, 19), (136, 128, (6, 6), 5, 5)]
    {
        let g = geometry(channels, size, kernel, kernel / 2);
        let one = winograd(g, out);
        assert!(one.parallel(one.group.min(n)), "work for several threads");
        let bits = |threads| {
            in_pool(threads, g, out, n).map(|values| values.into_iter().map(f32::to_bits).collect())
        };
        let one: [Vec<u32>; 3] = bits(1);
        assert!(one == bits(2), "two threads");
        assert!(one == bits(3), "three threads");
    }
}

/// Batches of other sizes, gradients without a forward pass, with other weights, and without one for the
/// images.
#[test]
fn nothing_stays_from_one_call_to_the_next() {
    let (g, out) = (geometry(20, (9, 6), 3, 1), 33);
    let mut used = winograd(g, out);
    for (n, seed, forward, wanted) in [
        (3, 1, true, true),
        (40, 2, true, false),
        (2, 3, false, true),
        (0, 4, true, true),
        (5, 5, true, true),
    ] {
        let (x, weight) = (noise(n * g.image(), seed), noise(out * g.taps(), seed + 10));
        let dy = noise(n * out * g.places(), seed + 20);
        let run = |winograd: &mut Winograd| {
            let [mut y, mut dweight, mut dx] = [&dy, &weight, &x].map(|like| vec![f32::NAN; like.len()]);
            if forward {
                winograd.forward(&weight, &x, &mut y, n, |_| ());
            }
            winograd.backward(&weight, &x, &dy, n, &mut dweight, wanted.then_some(&mut dx));
            [y, dweight, dx].map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let fresh = run(&mut winograd(g, out));
        assert!(run(&mut used) == fresh, "{n} images");
        if n == 0 {
            assert!(fresh[1].iter().all(|&bits| bits == 0), "no images, no gradient");
        }
    }
}

#[test]
fn each_complete_result_is_finished_once() {
    let (g, out, n) = (geometry(5, (10, 7), 3, 1), 18, 9);
    let (x, weight) = (noise(n * g.image(), 1), noise(out * g.taps(), 2));
    let mut winograd = winograd(g, out);
    let [mut plain, mut finished] = [vec![0.0; n * out * g.places()], vec![0.0; n * out * g.places()]];
    winograd.forward(&weight, &x, &mut plain, n, |_| ());
    winograd.forward(&weight, &x, &mut finished, n, |image| {
        assert_eq!(image.len(), out * g.places());
        for value in image {
            *value += 1.0;
        }
    });
    assert!(plain.iter().zip(&finished).all(|(plain, finished)| plain + 1.0 == *finished));
}

#[test]
fn other_convolutions_are_refused() {
    let with = |kernel, stride| Geometry::of(&[64, 9, 9], kernel, stride, 1);
    assert!(Winograd::new(with(3, 2), 64, &Workspace::default()).is_none() && !pays(with(3, 2), 64));
    assert!(Winograd::new(with(1, 1), 64, &Workspace::default()).is_none() && !pays(with(1, 1), 64));
    assert!(Winograd::new(with(3, 1), 64, &Workspace::default()).is_some() && pays(with(3, 1), 64));
    assert!(!pays(with(3, 1), 1) && !pays(geometry(64, (2, 2), 3, 1), 64));
}
