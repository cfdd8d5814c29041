//! The update of one variable by stochastic gradient descent, in place.

use candle_core::{CpuStorage, InplaceOp2, InplaceOp3, Layout, Result, Tensor, bail};

use super::values;

/// `v <- momentum v + (g + decay w)` on the CPU. `v` must not share its memory with another tensor.
pub(crate) fn accumulate(v: &Tensor, g: &Tensor, w: &Tensor, momentum: f64, decay: f64) -> Result<()> {
    let (momentum, decay) = (momentum as f32, decay as f32);
    v.inplace_op3(&g.contiguous()?, &w.contiguous()?, &Accumulate { momentum, decay })
}

/// `w <- w - rate (g + decay w)` on the CPU.
pub(crate) fn descend(w: &Tensor, g: &Tensor, rate: f64, decay: f64) -> Result<()> {
    let (rate, decay) = (rate as f32, decay as f32);
    w.inplace_op2(&g.contiguous()?, &Descend { rate, decay })
}

struct Accumulate {
    momentum: f32,
    decay: f32,
}

impl InplaceOp3 for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate-velocity"
    }

    fn cpu_fwd(
        &self,
        v: &mut CpuStorage,
        v_layout: &Layout,
        g: &CpuStorage,
        g_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
    ) -> Result<()> {
        let v = values_mut(v, v_layout)?;
        let (g, w) = (values(g, g_layout)?, values(w, w_layout)?);
        for ((v, g), w) in v.iter_mut().zip(g).zip(w) {
            *v = self.momentum * *v + (g + self.decay * w);
        }
        Ok(())
    }
}

struct Descend {
    rate: f32,
    decay: f32,
}

impl InplaceOp2 for Descend {
    fn name(&self) -> &'static str {
        "descend"
    }

    fn cpu_fwd(
        &self,
        w: &mut CpuStorage,
        w_layout: &Layout,
        g: &CpuStorage,
        g_layout: &Layout,
    ) -> Result<()> {
        let (w, g) = (values_mut(w, w_layout)?, values(g, g_layout)?);
        for (w, g) in w.iter_mut().zip(g) {
            *w -= self.rate * (g + self.decay * *w);
        }
        Ok(())
    }
}

fn values_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> Result<&'a mut [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((start, end))) => Ok(&mut values[start..end]),
        _ => bail!("descent takes contiguous tensors of f32, not {layout:?}"),
    }
}
