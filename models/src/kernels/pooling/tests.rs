use proptest::prelude::*;

use super::*;
use crate::kernels::reference::noise;

fn windows(partial: bool) -> impl Strategy<Value = Windows> {
    (1..4usize, 1..14usize, 1..40usize, 1..5usize, 1..5usize, 0..=u8::from(partial)).prop_map(
        |(channels, height, width, size, stride, partial)| Windows {
            channels,
            height,
            width,
            size,
            stride,
            partial: partial == 1,
        },
    )
}

/// The pixels of each window as indices of a batch, window after window.
fn pixels(windows: &Windows, n: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for plane in 0..n * windows.channels {
        for row in 0..windows.rows() {
            for column in 0..windows.columns() {
                let (top, left) = (row * windows.stride, column * windows.stride);
                let inside = (0..windows.size * windows.size).filter_map(|at| {
                    let (down, across) = (top + at / windows.size, left + at % windows.size);
                    let place = (plane * windows.height + down) * windows.width + across;
                    (down < windows.height && across < windows.width).then_some(place)
                });
                all.push(inside.collect());
            }
        }
    }
    all
}

/// Values of both signs, few of them different, so that many are equal.
fn steps(count: usize) -> Vec<f32> {
    noise(count, 5).iter().map(|value| (value * 4.0).round()).collect()
}

proptest! {
        #[test]
        fn maxima_are_those_of_the_definition(windows in windows(true), rectify: bool, n in 1..4usize) {
            let x = steps(n * windows.image());
            let mut pool = MaxPool::new(windows, rectify).expect("small windows");
            let mut y = vec![f32::NAN; n * windows.pooled()];
            let mut dx = vec![f32::NAN; x.len()];
            // Twice, so that state left by the first call would show.
            pool.forward(&noise(x.len(), 6), &mut y, n);
            pool.forward(&x, &mut y, n);
            let dy = noise(y.len(), 7);
            pool.backward(&dy, &mut dx, n);
            let mut expected = vec![0.0; x.len()];
            for (window, pixels) in pixels(&windows, n).iter().enumerate() {
                let mut best = pixels[0];
                for &pixel in pixels {
                    if x[pixel] > x[best] {
                        best = pixel;
                    }
                }
                let value = if rectify { x[best].max(0.0) } else { x[best] };
                prop_assert_eq!(y[window], value);
                if !rectify || value > 0.0 {
                    expected[best] += dy[window];
                }
            }
            prop_assert_eq!(dx, expected);
        }

        #[test]
        fn means_are_those_of_the_definition(windows in windows(false), n in 1..4usize) {
            let x = noise(n * windows.image(), 5);
            let mut pool = AveragePool::new(windows);
            let mut y = vec![f32::NAN; n * windows.pooled()];
            let mut dx = vec![f32::NAN; x.len()];
            pool.forward(&x, &mut y, n);
            let dy = noise(y.len(), 7);
            pool.backward(&dy, &mut dx, n);
            let mut expected = vec![0.0f32; x.len()];
            let area = (windows.size * windows.size) as f32;
            for (window, pixels) in pixels(&windows, n).iter().enumerate() {
                let mean = pixels.iter().map(|pixel| x[*pixel]).sum::<f32>() / area;
                prop_assert!((y[window] - mean).abs() < 1e-6);
                for pixel in pixels {
expected[*pixel] += dy[window] / area;
}
            }
            for (value, expected) in dx.iter().zip(&expected) {
                prop_assert!((value - expected).abs() < 1e-5);
            }
        }
    }

#[test]
fn nan_does_not_hide() {
    for (size, rectify) in [(2, false), (2, true), (3, false)] {
        let windows = Windows { channels: 1, height: size, width: size, size, stride: size, partial: false };
        for place in 0..size * size {
            let mut x: Vec<f32> = (0..size * size).map(|value| value as f32).collect();
            x[place] = f32::NAN;
            let mut y = [0.0];
            MaxPool::new(windows, rectify).expect("small windows").forward(&x, &mut y, 1);
            assert!(y[0].is_nan(), "{size} {place}");
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let windows = Windows { channels: 8, height: 30, width: 30, size: 3, stride: 2, partial: false };
    let (n, x) = (33, noise(33 * windows.image(), 1));
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        pool.install(|| {
            let (mut y, mut dx) = (vec![0.0; n * windows.pooled()], x.clone());
            let mut maxima = MaxPool::new(windows, true).expect("small windows");
            maxima.forward(&x, &mut y, n);
            maxima.backward(&y, &mut dx, n);
            let mut means = AveragePool::new(windows);
            let (mut z, mut dz) = (y.clone(), x.clone());
            means.forward(&x, &mut z, n);
            means.backward(&z, &mut dz, n);
            [y, dx, z, dz]
        })
    };
    let one = with(1);
    assert_eq!(with(2), one);
    assert_eq!(with(3), one);
}

#[test]
fn windows_that_do_not_fit_give_nothing() {
    let windows = Windows { channels: 1, height: 1, width: 3, size: 2, stride: 2, partial: false };
    let (mut y, mut dx) = ([], [f32::NAN; 3]);
    let mut pool = MaxPool::new(windows, false).expect("small windows");
    pool.forward(&[1.0, 2.0, 3.0], &mut y, 1);
    pool.backward(&y, &mut dx, 1);
    assert_eq!(dx, [0.0; 3]);
    assert!(MaxPool::new(Windows { size: 256, ..windows }, false).is_none());
}

#[test]
fn partial_windows_are_as_many_as_in_pytorch() {
    // (input, size, stride) to the outputs of torch.nn.MaxPool2d(size, stride, ceil_mode=True).
    for (input, size, stride, expected) in [
        (24, 3, 2, 12),
        (12, 3, 2, 6),
        (5, 2, 2, 3),
        (4, 2, 2, 2),
        (7, 3, 3, 3),
        (4, 1, 3, 2),
        (5, 1, 3, 2),
        (6, 2, 4, 2),
    ] {
        assert_eq!(along(input, size, stride, true), expected, "{input} {size} {stride}");
    }
    assert_eq!([along(24, 3, 2, false), along(2, 3, 1, true), along(2, 3, 1, false)], [11, 0, 0]);
}
