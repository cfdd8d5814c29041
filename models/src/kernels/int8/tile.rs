//! The innermost loop: sums of products of 8-bit integers, four at a time, for a few rows and columns.
//!
//! One factor is read as single groups of four, which meet every column; the other as vectors of columns. One of the two is
//! signed (weights), the other unsigned (activations). The sums are exact in 32 bits, and so the same with all instructions.
//!
//! Plain loops do not become the instructions for this: with AVX-512 they take ten times as long as `vpdpbusd`, and three times
//! as long as the loop for AVX2 (`instructions_beside_plain_loops`).

use super::PANEL;
#[cfg(target_arch = "x86_64")]
use crate::kernels::arch;
use crate::kernels::vectorised::vectorised;

/// The sums of `R` rows and `C` panels of columns, each rounded once.
pub(super) type Sums<const R: usize, const C: usize> = [[[f32; PANEL]; C]; R];

/// What the sums begin with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start<'a, const R: usize, const C: usize> {
    /// A number for each row.
    Rows([i32; R]),
    /// The product of a number for each row and one for each column.
    Products([i32; R], [&'a [i32; PANEL]; C]),
}

impl<const R: usize, const C: usize> Start<'_, R, C> {
    #[inline(always)]
    fn of(&self, row: usize, panel: usize) -> [i32; PANEL] {
        match self {
            Self::Rows(rows) => [rows[row]; PANEL],
            Self::Products(rows, columns) => columns[panel].map(|column| column.wrapping_mul(rows[row])),
        }
    }
}

/// The instructions for products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    /// Plain loops.
    Portable,
    /// AVX2: products of 16-bit integers, added in pairs.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with VNNI: products of 8-bit integers, added in fours.
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

impl Level {
    /// The best that the CPU has. Found instructions are the only way to a value of this type, which `sums` relies on.
    #[inline]
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self(match arch() {
            pulp::Arch::V4(_) if std::is_x86_feature_detected!("avx512vnni") => Instructions::Vnni,
            // AVX2 is a part of both.
            pulp::Arch::V4(_) | pulp::Arch::V3(_) => Instructions::Avx2,
            _ => Instructions::Portable,
        });
        #[cfg(not(target_arch = "x86_64"))]
        Self(Instructions::Portable)
    }

    /// Overwrites `sums` with those over the depth of `a` of row times column, added to `start`. `a` is signed if `SIGNED`, else
    /// `b`. The sums are exact before they are rounded, if they and `start` fit 32 bits together.
    ///
    /// # Panics
    /// If a panel is shorter than `a`.
    #[inline]
    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "functions for instructions that not every CPU has are unsafe to call")
    )]
    pub(super) fn sums<const R: usize, const C: usize, const SIGNED: bool>(
        self,
        a: &[[u32; R]],
        b: [&[[u32; PANEL]]; C],
        start: &Start<'_, R, C>,
        sums: &mut Sums<R, C>,
    ) {
        match self.0 {
            Instructions::Portable => portable::<R, C, SIGNED>(a, b, start, sums),
            // SAFETY: `best` has found AVX2 in this CPU, which is all that the function needs; it takes no pointers.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => unsafe { x86::avx2::<R, C, SIGNED>(a, b, start, sums) },
            // SAFETY: `best` has found AVX-512F and VNNI in this CPU, all that the function needs; it takes no pointers.
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => unsafe { x86::vnni::<R, C, SIGNED>(a, b, start, sums) },
        }
    }
}

fn portable<const R: usize, const C: usize, const SIGNED: bool>(
    a: &[[u32; R]],
    b: [&[[u32; PANEL]]; C],
    start: &Start<'_, R, C>,
    sums: &mut Sums<R, C>,
) {
    vectorised(
        #[inline(always)]
        || {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (panel, (sums, b)) in sums.iter_mut().zip(b).enumerate() {
                    let mut totals = start.of(row, panel);
                    for (a, b) in a.iter().zip(&b[..a.len()]) {
                        let a = a[row];
                        for (total, b) in totals.iter_mut().zip(b) {
                            *total = total.wrapping_add(dot::<SIGNED>(a, *b));
                        }
                    }
                    *sums = totals.map(|total| total as f32);
                }
            }
        },
    );
}

/// The sum of the products of the four numbers in `a` and those in `b`.
#[inline(always)]
fn dot<const SIGNED: bool>(a: u32, b: u32) -> i32 {
    let signed = |group: u32, place: u32| i32::from(((group >> (8 * place)) as u8).cast_signed());
    let unsigned = |group: u32, place: u32| i32::from((group >> (8 * place)) as u8);
    let product = |place| {
        if SIGNED { signed(a, place) * unsigned(b, place) } else { unsigned(a, place) * signed(b, place) }
    };
    product(0) + product(1) + product(2) + product(3)
}

/// The loops of x86-64. Vectors are cast from and to arrays, so that nothing is read or written through pointers.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_madd_epi16,
        _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_slli_epi16, _mm256_srai_epi16,
        _mm256_srli_epi16, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_mullo_epi32, _mm512_set1_epi32,
        _mm512_setzero_si512,
    };

    use bytemuck::cast;

    use super::{PANEL, Start, Sums};

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn vnni<const R: usize, const C: usize, const SIGNED: bool>(
        a: &[[u32; R]],
        mut b: [&[[u32; PANEL]]; C],
        start: &Start<'_, R, C>,
        sums: &mut Sums<R, C>,
    ) {
        for panel in &mut b {
            *panel = &panel[..a.len()];
        }
        let mut totals = [[_mm512_setzero_si512(); C]; R];
        match start {
            Start::Rows(rows) => {
                for (totals, &row) in totals.iter_mut().zip(rows) {
                    *totals = [_mm512_set1_epi32(row); C];
                }
            }
            Start::Products(rows, columns) => {
                for (totals, &row) in totals.iter_mut().zip(rows) {
                    for (total, &columns) in totals.iter_mut().zip(columns) {
                        *total = _mm512_mullo_epi32(_mm512_set1_epi32(row), cast(*columns));
                    }
                }
            }
        }
        for (index, a) in a.iter().enumerate() {
            let mut columns = [_mm512_setzero_si512(); C];
            for (columns, panel) in columns.iter_mut().zip(&b) {
                *columns = cast(panel[index]);
            }
            for (totals, &a) in totals.iter_mut().zip(a) {
                let a = _mm512_set1_epi32(a.cast_signed());
                for (total, &columns) in totals.iter_mut().zip(&columns) {
                    *total = if SIGNED {
                        _mm512_dpbusd_epi32(*total, columns, a)
                    } else {
                        _mm512_dpbusd_epi32(*total, a, columns)
                    };
                }
            }
        }
        for (sums, totals) in sums.iter_mut().zip(totals) {
            for (sums, total) in sums.iter_mut().zip(totals) {
                *sums = cast(_mm512_cvtepi32_ps(total));
            }
        }
    }

    /// Rows whose sums fit the sixteen registers, with two vectors of columns each.
    const TOGETHER: usize = 4;

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2<const R: usize, const C: usize, const SIGNED: bool>(
        a: &[[u32; R]],
        b: [&[[u32; PANEL]]; C],
        start: &Start<'_, R, C>,
        sums: &mut Sums<R, C>,
    ) {
        for (column, panel) in b.into_iter().enumerate() {
            let mut first = 0;
            while first + TOGETHER <= R {
                avx2_rows::<R, C, SIGNED, TOGETHER>(a, panel, (first, column), start, sums);
                first += TOGETHER;
            }
            while first < R {
                avx2_rows::<R, C, SIGNED, 1>(a, panel, (first, column), start, sums);
                first += 1;
            }
        }
    }

    /// `T` rows from `first` on, and one panel.
    #[target_feature(enable = "avx2")]
    fn avx2_rows<const R: usize, const C: usize, const SIGNED: bool, const T: usize>(
        a: &[[u32; R]],
        panel: &[[u32; PANEL]],
        (first, column): (usize, usize),
        start: &Start<'_, R, C>,
        sums: &mut Sums<R, C>,
    ) {
        let mut totals = [[_mm256_setzero_si256(); 2]; T];
        for (row, totals) in totals.iter_mut().enumerate() {
            *totals = cast(start.of(first + row, column));
        }
        for (a, panel) in a.iter().zip(&panel[..a.len()]) {
            let columns: [__m256i; 2] = cast(*panel);
            let columns = [halves::<false>(columns[0], SIGNED), halves::<false>(columns[1], SIGNED)];
            for (totals, &a) in totals.iter_mut().zip(&a[first..first + T]) {
                let [even, odd] = halves::<true>(_mm256_set1_epi32(a.cast_signed()), SIGNED);
                for (total, columns) in totals.iter_mut().zip(&columns) {
                    let pairs = [_mm256_madd_epi16(even, columns[0]), _mm256_madd_epi16(odd, columns[1])];
                    *total = _mm256_add_epi32(*total, _mm256_add_epi32(pairs[0], pairs[1]));
                }
            }
        }
        for (sums, totals) in sums[first..first + T].iter_mut().zip(totals) {
            sums[column] = cast([_mm256_cvtepi32_ps(totals[0]), _mm256_cvtepi32_ps(totals[1])]);
        }
    }

    /// The numbers at even places and those at odd ones, as 16-bit integers: the factor `a` if `A`, which is `signed`, or `b`,
    /// which is not.
    #[target_feature(enable = "avx2")]
    fn halves<const A: bool>(groups: __m256i, signed: bool) -> [__m256i; 2] {
        if A == signed {
            [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(groups)), _mm256_srai_epi16::<8>(groups)]
        } else {
            [_mm256_and_si256(groups, _mm256_set1_epi16(255)), _mm256_srli_epi16::<8>(groups)]
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All instructions that this CPU has.
    fn levels() -> Vec<Level> {
        #[cfg(not(target_arch = "x86_64"))]
        let others = [];
        #[cfg(target_arch = "x86_64")]
        let others = [
            (Instructions::Avx2, std::is_x86_feature_detected!("avx2")),
            (
                Instructions::Vnni,
                std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vnni"),
            ),
        ];
        let mut levels = vec![Level(Instructions::Portable)];
        levels.extend(others.into_iter().filter(|(_, is_there)| *is_there).map(|(level, _)| Level(level)));
        levels
    }

    fn check<const R: usize, const C: usize, const SIGNED: bool>(depth: usize, bytes: &[u8]) {
        let mut bytes = bytes.iter().copied().cycle();
        let mut group = || u32::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap()));
        let a: Vec<[u32; R]> = (0..depth).map(|_| std::array::from_fn(|_| group())).collect();
        let b: [Vec<[u32; PANEL]>; C] =
            std::array::from_fn(|_| (0..depth).map(|_| std::array::from_fn(|_| group())).collect());
        let number = |group: u32, place: usize, signed| {
            let byte = group.to_le_bytes()[place];
            if signed { i64::from(byte.cast_signed()) } else { i64::from(byte) }
        };
        let rows: [i32; R] = std::array::from_fn(|row| 7 - 1000 * (row as u16 as i32));
        let columns: [[i32; PANEL]; C] =
            std::array::from_fn(|panel| std::array::from_fn(|lane| (300 * panel + lane) as u16 as i32));
        for start in [Start::Rows(rows), Start::Products(rows, columns.each_ref())] {
            for level in levels() {
                let mut sums = [[[f32::NAN; PANEL]; C]; R];
                level.sums::<R, C, SIGNED>(&a, b.each_ref().map(Vec::as_slice), &start, &mut sums);
                for (row, column) in (0..R).flat_map(|row| (0..C * PANEL).map(move |column| (row, column))) {
                    let (panel, lane) = (column / PANEL, column % PANEL);
                    let terms = (0..depth).flat_map(|k| (0..4).map(move |place| (k, place)));
                    let term = |(k, place): (usize, usize)| {
                        number(a[k][row], place, SIGNED) * number(b[panel][k][lane], place, !SIGNED)
                    };
                    let expected = i64::from(start.of(row, panel)[lane]) + terms.map(term).sum::<i64>();
                    assert_eq!(sums[row][panel][lane], expected as f32, "{level:?} ({row}, {column})");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn sums_are_exact_with_all_instructions(depth in 0usize..40, bytes in prop::collection::vec(any::<u8>(), 1..3000)) {
            check::<8, 1, true>(depth, &bytes);
            check::<8, 2, true>(depth, &bytes);
            check::<8, 2, false>(depth, &bytes);
            check::<1, 1, false>(depth, &bytes);
            check::<1, 2, false>(depth, &bytes);
        }
    }

    /// What the instructions bring. `cargo test --release ... instructions_beside -- --ignored --nocapture`
    #[test]
    #[ignore = "it measures"]
    fn instructions_beside_plain_loops() {
        let (a, b) = (vec![[0x0102_0304; 8]; 64], vec![[0x0506_0708; PANEL]; 64]);
        for level in levels() {
            let mut sums = [[[0.0; PANEL]; 2]; 8];
            let turn = |sums: &mut Sums<8, 2>| {
                let began = std::time::Instant::now();
                for _ in 0..1000 {
                    let a = std::hint::black_box(&a);
                    level.sums::<8, 2, true>(a, [&b, &b], &Start::Rows([0; 8]), sums);
                }
                began.elapsed().as_nanos() as f64
            };
            let best = (0..50).map(|_| turn(&mut sums)).fold(f64::INFINITY, f64::min);
            let products = 1000.0 * 64.0 * 4.0 * 8.0 * 2.0 * PANEL as f64;
            println!("{level:?}: {:.0} products in a nanosecond", products / best);
        }
    }

    #[test]
    fn the_largest_numbers_at_the_largest_depth_do_not_overflow() {
        let depth = super::super::MAX_DEPTH / 4;
        for signed in [[0x81; 4], [0x7f; 4]] {
            let a = vec![[u32::from_le_bytes(signed)]; depth];
            let b = vec![[u32::MAX; PANEL]; depth];
            let expected = i32::from(u8::cast_signed(signed[0])) * 255 * 4 * depth as u16 as i32;
            for level in levels() {
                let mut sums = [[[0.0; PANEL]; 1]; 1];
                level.sums::<1, 1, true>(&a, [&b], &Start::Rows([-expected + 5]), &mut sums);
                assert_eq!(sums, [[[5.0; PANEL]]], "{level:?}");
            }
        }
    }
}
