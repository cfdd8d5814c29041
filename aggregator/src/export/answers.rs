//! What the exported functions answer, by the task: probabilities of the classes, or numbers.

use models::Task;

/// What differs from task to task.
pub(super) struct Answers {
    /// What the network's outputs are.
    pub(super) outputs: &'static str,
    /// What `predict` gives.
    pub(super) predicted: &'static str,
    /// What `predict` makes of the outputs in `PyTorch`: a method.
    pub(super) torch: &'static str,
    /// The same in numpy: a function; none if the outputs are it.
    pub(super) numpy: Option<&'static str>,
    /// What the command prints of a sample.
    pub(super) printed: &'static str,
    /// Lines of the command that make `said` of what was predicted for one sample.
    pub(super) said: &'static str,
}

impl Answers {
    pub(super) fn of(task: Task) -> Self {
        match task {
            Task::Classification => Self {
                outputs: "logits",
                predicted: "probabilities of the classes",
                torch: ".softmax(dim=-1)",
                numpy: Some("softmax"),
                printed: "most probable classes",
                said: "best = np.argsort(-answers, kind=\"stable\")[: arguments.top]\n                \
                       said = \"  \".join(f\"{CLASSES[i]} {100 * answers[i]:.1f} %\" for i in best)",
            },
            Task::MultiLabel => Self {
                outputs: "logits",
                predicted: "probabilities of the classes, each by itself",
                torch: ".sigmoid()",
                numpy: Some("sigmoid"),
                printed: "probabilities of the classes",
                said: "best = np.argsort(-answers, kind=\"stable\")[: max(arguments.top, int((answers > 0.5).sum()))]\n                \
                       said = \"  \".join(f\"{CLASSES[i]} {100 * answers[i]:.1f} %\" for i in best)",
            },
            Task::Regression { .. } => Self {
                outputs: "numbers",
                predicted: "numbers",
                torch: "",
                numpy: None,
                printed: "numbers",
                said: "said = \"  \".join(f\"{name} {answer:.6g}\" for name, answer in zip(CLASSES, answers))",
            },
        }
    }
}
