//! The plan of a network's source: its layers by part with their names, and where each tensor comes from and goes to.

use std::collections::BTreeMap;

use models::{Architecture, ArchitectureError, Layer};

use super::layers::{Spelling, spelled};
use super::python::Scope;

/// A network as both sources spell it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    /// The shape of one answer: `[classes]`, or `[positions, classes]`.
    pub(super) output: Vec<usize>,
    /// All tensors, in the order of the layers.
    pub(super) tensors: Vec<Planned>,
}

/// A part with its layers; the projection is absent where it has none.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
    /// The shape of what it gives for one sample.
    pub(super) output: Vec<usize>,
}

/// A layer in its place.
#[derive(Debug)]
pub(super) struct Step {
    /// Its name among its neighbours.
    pub(super) name: String,
    pub(super) operation: Operation,
}

#[derive(Debug)]
pub(super) enum Operation {
    Layer(Spelling),
    /// `body(x) + shortcut(x)`.
    Residual {
        body: Vec<Step>,
        shortcut: Vec<Step>,
    },
    /// Each channel of `x` times what `body` makes of the means of all channels.
    SqueezeExcite {
        body: Vec<Step>,
    },
}

/// A tensor of the exported weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// Its name in `state_dict`.
    pub(super) torch: String,
    /// Its name for the functions in numpy; `None` if they do without.
    pub(super) numpy: Option<String>,
    /// The tensor of the model that it is; `None` for zeros.
    pub(super) ours: Option<String>,
    pub(super) shape: Vec<usize>,
}

impl Plan {
    /// # Errors
    /// [`ArchitectureError`] if it is none of a network.
    pub(super) fn of(architecture: &Architecture) -> Result<Self, ArchitectureError> {
        let specs = architecture.parameter_specs()?;
        let shapes: BTreeMap<_, _> = specs.into_iter().map(|spec| (spec.name, spec.shape)).collect();
        let mut planner = Planner { shapes, tensors: Vec::new() };
        let mut shape = architecture.input.clone();
        let mut parts = Vec::new();
        for (name, layers) in architecture.parts() {
            let branch = Branch { part: name, place: name.to_owned(), path: name.to_owned() };
            let steps = planner.steps(&branch, layers, &mut shape)?;
            if name != "projection" || !layers.is_empty() {
                parts.push(Part { name, steps, output: shape.clone() });
            }
        }
        Ok(Self { parts, output: shape, tensors: planner.tensors })
    }

    /// All steps, blocks before what is in them.
    pub(super) fn steps(&self) -> Vec<&Step> {
        fn walk<'a>(steps: &'a [Step], all: &mut Vec<&'a Step>) {
            for step in steps {
                all.push(step);
                match &step.operation {
                    Operation::Layer(_) => {}
                    Operation::Residual { body, shortcut } => {
                        walk(body, all);
                        walk(shortcut, all);
                    }
                    Operation::SqueezeExcite { body } => walk(body, all),
                }
            }
        }
        let mut all = Vec::new();
        self.parts.iter().for_each(|part| walk(&part.steps, &mut all));
        all
    }

    /// Whether it has learned something of each position, and so knows no further ones.
    pub(super) fn has_learned_positions(&self) -> bool {
        self.steps().iter().any(|step| match &step.operation {
            Operation::Layer(spelling) => {
                spelling.numpy.as_ref().is_some_and(|function| function.name == "positions")
            }
            Operation::Residual { .. } | Operation::SqueezeExcite { .. } => false,
        })
    }

    /// Whether the network answers at each position of a sequence.
    pub(super) fn is_sequence(&self) -> bool {
        self.output.len() == 2
    }
}

/// Where a list of layers is.
struct Branch {
    part: &'static str,
    /// As labels have it.
    place: String,
    /// As names in `state_dict` have it.
    path: String,
}

struct Planner {
    /// Of the model's tensors.
    shapes: BTreeMap<String, Vec<usize>>,
    tensors: Vec<Planned>,
}

impl Planner {
    /// The layers of a branch. `shape` is that of their input, and in the end that of their output.
    fn steps(
        &mut self,
        branch: &Branch,
        layers: &[Layer],
        shape: &mut Vec<usize>,
    ) -> Result<Vec<Step>, ArchitectureError> {
        let mut scope = Scope::default();
        // Layers with names of their own keep these.
        let named: Vec<Option<String>> =
            layers.iter().map(|layer| layer.name().map(|name| scope.name(name))).collect();
        let mut steps = Vec::with_capacity(layers.len());
        for (index, (layer, name)) in layers.iter().zip(named).enumerate() {
            let label = layer.label(branch.part, &branch.place, index);
            let output = layer.output(branch.part, &branch.place, shape)?;
            let mut inside = |name: &str, kind: &str, layers: &[Layer], mut shape: Vec<usize>| {
                let place = format!("{label}.{kind}");
                let path = format!("{}.{name}.{kind}", branch.path);
                self.steps(&Branch { part: branch.part, place, path }, layers, &mut shape)
            };
            let step = match layer {
                Layer::Residual { body, shortcut } => {
                    let name = scope.numbered("block", 1);
                    let body = inside(&name, "body", body, shape.clone())?;
                    let shortcut = inside(&name, "shortcut", shortcut, shape.clone())?;
                    Step { name, operation: Operation::Residual { body, shortcut } }
                }
                Layer::SqueezeExcite { body } => {
                    let name = scope.numbered("excite", 1);
                    let body = inside(&name, "body", body, vec![shape[0], 1, 1])?;
                    Step { name, operation: Operation::SqueezeExcite { body } }
                }
                layer => {
                    let spelling = spelled(layer, &label, shape);
                    let name = name.unwrap_or_else(|| scope.numbered(spelling.stem, 1));
                    self.plan(&spelling, &format!("{}.{name}", branch.path), &label);
                    Step { name, operation: Operation::Layer(spelling) }
                }
            };
            steps.push(step);
            *shape = output;
        }
        Ok(steps)
    }

    fn plan(&mut self, spelling: &Spelling, path: &str, label: &str) {
        for tensor in spelling.tensors {
            let name = format!("{label}.{}", tensor.like);
            // A bias may be absent.
            let Some(shape) = self.shapes.get(&name) else { continue };
            self.tensors.push(Planned {
                torch: format!("{path}.{}", tensor.torch),
                numpy: tensor.numpy.map(|numpy| format!("{label}.{numpy}")),
                shape: shape.clone(),
                ours: tensor.numpy.is_some().then_some(name),
            });
        }
    }
}
