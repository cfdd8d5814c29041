//! Steps of an optimiser in candle's operations.

use std::collections::BTreeMap;

use candle_core::{DType, Result as CandleResult, Tensor};

use super::CandleEngine;
use crate::optimizer::{AdamSettings, Optimizer};

impl CandleEngine {
    /// The factor that scales gradients down to the norm `clip`, a scalar on the device: 1 if their norm is no greater.
    fn clip_factor(&self, gradients: &BTreeMap<String, Tensor>, clip: f64) -> CandleResult<Tensor> {
        let mut squares = Tensor::zeros((), DType::F32, &self.device)?;
        for (_, gradient) in gradients.iter().filter(|(name, _)| !self.buffers.contains(*name)) {
            squares = (squares + gradient.sqr()?.sum_all()?)?;
        }
        squares.sqrt()?.maximum(clip)?.recip()? * clip
    }

    /// One step along the gradients of the last backward pass. The host does not wait for the device.
    pub(super) fn step_along_own(&mut self, optimizer: &Optimizer, clip: Option<f64>) -> CandleResult<()> {
        self.steps = self.steps.saturating_add(1);
        let gradients = std::mem::take(&mut self.gradients);
        let factor = clip.map(|clip| self.clip_factor(&gradients, clip)).transpose()?;
        for (name, mut gradient) in gradients {
            if let Some(factor) = &factor {
                gradient = gradient.broadcast_mul(factor)?;
            }
            if let Some(anchor) = self.anchors.get(&name) {
                let variable = self.variables.get(&name).expect("what has a gradient is learned");
                let away = (variable.as_detached_tensor() - anchor)?;
                gradient = (gradient + (away * self.pull)?)?;
            }
            if let Some(shift) = self.shifts.get(&name) {
                gradient = (gradient + shift)?;
            }
            self.step_one(&name, &gradient, optimizer)?;
        }
        Ok(())
    }

    /// One step of one parameter. Does nothing to what is not learned.
    pub(super) fn step_one(
        &mut self,
        name: &str,
        gradient: &Tensor,
        optimizer: &Optimizer,
    ) -> CandleResult<()> {
        let Some(variable) = self.variables.get(name).filter(|_| !self.buffers.contains(name)).cloned()
        else {
            return Ok(());
        };
        let w = variable.as_detached_tensor();
        let optimizer = &if self.spared.contains(name) { optimizer.without_decay() } else { *optimizer };
        let stepped = match *optimizer {
            Optimizer::Sgd(sgd) | Optimizer::Nesterov(sgd) => {
                let gradient = decayed(gradient, &w, sgd.decay)?;
                let direction = if sgd.momentum == 0.0 {
                    gradient
                } else {
                    let velocity = self.kept(0, name, sgd.momentum, &gradient, 1.0)?;
                    match optimizer {
                        Optimizer::Nesterov(_) => (gradient + (velocity * sgd.momentum)?)?,
                        _ => velocity,
                    }
                };
                (w - (direction * sgd.rate)?)?
            }
            Optimizer::Adam(adam) => {
                let gradient = decayed(gradient, &w, adam.decay)?;
                self.adam_step(name, &w, &gradient, &adam)?
            }
            Optimizer::AdamW(adam) => {
                let kept = (w * (1.0 - adam.rate * adam.decay))?;
                self.adam_step(name, &kept, gradient, &adam)?
            }
        };
        variable.set(&stepped)
    }

    /// The parameter after a step of Adam without weight decay from `w`.
    fn adam_step(
        &mut self,
        name: &str,
        w: &Tensor,
        gradient: &Tensor,
        adam: &AdamSettings,
    ) -> CandleResult<Tensor> {
        let power = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let corrections = [adam.beta1, adam.beta2].map(|beta| 1.0 - beta.powi(power));
        let mean = self.kept(0, name, adam.beta1, gradient, 1.0 - adam.beta1)?;
        let square = self.kept(1, name, adam.beta2, &gradient.sqr()?, 1.0 - adam.beta2)?;
        let root = ((square.sqrt()? / corrections[1].sqrt())? + adam.epsilon)?;
        w - ((mean / root)? * (adam.rate / corrections[0]))?
    }

    /// The next value of what is kept for a parameter, `left` times the previous one plus `share` times `new`.
    fn kept(
        &mut self,
        moment: usize,
        name: &str,
        left: f64,
        new: &Tensor,
        share: f64,
    ) -> CandleResult<Tensor> {
        let new = (new * share)?;
        let next = match self.moments[moment].get(name) {
            Some(previous) => ((previous * left)? + new)?,
            None => new,
        };
        // Nothing writes into this tensor later: every operation above makes a new one.
        self.moments[moment].insert(name.to_owned(), next.clone());
        Ok(next)
    }
}

/// A gradient with that of weight decay.
fn decayed(gradient: &Tensor, w: &Tensor, decay: f64) -> CandleResult<Tensor> {
    if decay == 0.0 { Ok(gradient.clone()) } else { gradient + (w * decay)? }
}
