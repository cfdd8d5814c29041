use std::time::Instant;

use super::super::geometry::Geometry;
use super::super::product::{Matrix, product};
use super::Winograd;

fn geometry(channels: usize, (height, width): (usize, usize), kernel: usize, padding: usize) -> Geometry {
    Geometry::of(&[channels, height, width], kernel, 1, padding)
}

/// Numbers in [-1, 1) without structure.
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

/// The largest difference, relative to the sum of the magnitudes.
fn error(values: &[f32], expected: &[(f64, f64)]) -> f64 {
    assert_eq!(values.len(), expected.len());
    let relative = |(value, (sum, magnitude)): (&f32, &(f64, f64))| {
        assert!(value.is_finite());
        (f64::from(*value) - sum).abs() / magnitude.max(1e-3)
    };
    values.iter().zip(expected).map(relative).fold(0.0, f64::max)
}

/// The errors of the result and of the gradients for the weights and the images.
fn errors(g: Geometry, out: usize, n: usize) -> [f64; 3] {
    let (x, weight) = (noise(n * g.image(), 1), noise(out * g.taps(), 2));
    let dy = noise(n * out * g.places(), 3);
    let mut winograd = Winograd::new(g, out).unwrap();
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
    [error(&y, &for_y), error(&dweight, &for_w), error(&dx, &for_x)]
}

#[test]
fn results_and_gradients_are_those_of_a_convolution() {
    for (channels, out, size, kernel, padding, n) in [
        (16, 16, (8, 8), 3, 1, 2),
        (32, 64, (14, 14), 5, 2, 3),
        (17, 5, (7, 9), 3, 0, 2),
        (64, 48, (4, 4), 3, 1, 70),
    ] {
        let errors = errors(geometry(channels, size, kernel, padding), out, n);
        println!(
            "{channels} -> {out} @ {size:?}, kernel {kernel}: {:.1e} {:.1e} {:.1e}",
            errors[0], errors[1], errors[2]
        );
        assert!(errors.iter().all(|&error| error < 1e-5), "{errors:?}");
    }
}

#[test]
#[ignore = "measures; run with --nocapture"]
fn measure() {
    let threads = std::env::var("THREADS").map_or(1, |n| n.parse().unwrap());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let only = std::env::var("LAYER").map_or(usize::MAX, |n| n.parse().unwrap());
    let layers = [
        (32, 64, 14, 5, 2),
        (64, 128, 32, 3, 1),
        (128, 128, 16, 3, 1),
        (128, 256, 16, 3, 1),
        (256, 512, 8, 3, 1),
        (512, 512, 4, 3, 1),
    ];
    pool.install(|| {
        for (index, (channels, out, size, kernel, padding)) in layers.into_iter().enumerate() {
            if only != usize::MAX && only != index {
                continue;
            }
            measure_layer(geometry(channels, (size, size), kernel, padding), out, 64);
        }
    });
}

/// Seconds that this thread has been on a processor, where Linux tells; others share the machine.
fn clock(start: Instant) -> f64 {
    match std::fs::read_to_string("/proc/thread-self/schedstat") {
        Ok(text) => text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9,
        Err(_) => start.elapsed().as_secs_f64(),
    }
}

fn time(start: Instant, f: impl FnOnce()) -> f64 {
    let before = clock(start);
    f();
    clock(start) - before
}

fn measure_layer(g: Geometry, out: usize, n: usize) {
    let (x, weight) = (noise(n * g.image(), 1), noise(out * g.taps(), 2));
    let dy = noise(n * out * g.places(), 3);
    let mut winograd = Winograd::new(g, out).unwrap();
    let (mut y, mut dweight, mut dx) = (dy.clone(), weight.clone(), x.clone());
    let size = 512;
    let (a, b, mut c) = (noise(size * size, 1), noise(size * size, 2), vec![0.0; size * size]);
    let (mut forward, mut backward, mut products) = (0.0, 0.0, 0.0);
    let (start, repetitions) = (Instant::now(), 12);
    for repetition in 0..=repetitions {
        let (a, b) = (Matrix::new(&a, size, size), Matrix::new(&b, size, size));
        let times = [
            time(start, || winograd.forward(&weight, &x, &mut y, n, |_| ())),
            time(start, || winograd.backward(&weight, &x, &dy, n, &mut dweight, Some(&mut dx))),
            time(start, || (0..10).for_each(|_| product(1.0, a, b, 0.0, &mut c, size))),
        ];
        if repetition > 0 {
            (forward, backward, products) = (forward + times[0], backward + times[1], products + times[2]);
        }
    }
    let [forward, backward, products] = [forward, backward, products].map(|time| time / repetitions as f64);
    let peak = 20e-9 * (size as f64).powi(3) / products;
    let flops = 2e-9 * (n * g.places() * g.taps() * out) as f64;
    println!(
        "{:3} -> {out:3} @{:2} k{}: forward {:6.2} ms {:4.0} GF/s = {:.2} peak; backward {:6.2} ms {:4.0} GF/s = {:.2} \
         peak; both {:.2} peak ({peak:.0}); group {}",
        g.channels,
        g.height,
        g.kernel,
        forward * 1e3,
        flops / forward,
        flops / forward / peak,
        backward * 1e3,
        2.0 * flops / backward,
        2.0 * flops / backward / peak,
        3.0 * flops / (forward + backward) / peak,
        winograd.group,
    );
}
