//! The kinds of layers that a configuration can name, with what can be said of each.
//!
//! The one source of truth for reading layers, for the messages about them and for the help.

use models::architecture::MAX_ELEMENTS;

/// One kind of layer.
pub(crate) struct LayerKind {
    /// Its name in the configuration, which is also that in the stored form of an architecture.
    pub(crate) name: &'static str,
    /// What automatic names of its layers begin with; none if it has no parameters to be named.
    pub(crate) prefix: Option<&'static str>,
    /// The field that may stand for all, as in `{ max-pool = 2 }`.
    pub(crate) short: Option<&'static str>,
    /// Its settings but for the name.
    pub(crate) fields: &'static [Field],
    /// What it does, in one line.
    pub(crate) says: &'static str,
}

/// One setting of a layer.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) accepts: Accepts,
    /// What it is where it is left out.
    pub(crate) absent: Absent,
}

/// What a setting accepts.
#[derive(Clone, Copy)]
pub(crate) enum Accepts {
    /// A whole number in this closed range.
    Whole(i64, i64),
    /// A whole number of at least 1, or "classes".
    Classes,
    /// A whole number of at least 0, or "same".
    Padding,
    /// A number of at least this and at most 10^9.
    Number(Least),
    /// A number of at least 0 and less than 1.
    Share,
    /// A truth value.
    Truth,
    /// A list of layers.
    Layers,
}

/// Where a range of numbers begins.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Least {
    /// 0 is accepted.
    Zero,
    /// Only what is greater than 0 is.
    Positive,
}

/// What a setting is where it is left out.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// It must not be left out.
    Required,
    Whole(i64),
    Number(f64),
    Truth(bool),
    /// What another setting is, which is required.
    Like(&'static str),
    /// No layers.
    NoLayers,
}

/// The number of classes of the data set, where a number stands otherwise.
pub(crate) const CLASSES: &str = "classes";
/// The padding that keeps height and width if the stride is 1.
pub(crate) const SAME: &str = "same";

/// Larger numbers are too large for any layer; how large is too large depends on the others.
const LIMIT: i64 = 1 << 30;
const _: () = assert!(LIMIT as usize == MAX_ELEMENTS, "what a setting may be is what a network may have");
/// The greatest number that is no count.
const GREATEST: f64 = 1e9;
const COUNT: Accepts = Accepts::Whole(1, LIMIT);

const fn field(name: &'static str, accepts: Accepts, absent: Absent) -> Field {
    Field { name, accepts, absent }
}

/// A layer without name and settings.
const fn plain(name: &'static str, says: &'static str) -> LayerKind {
    LayerKind { name, prefix: None, short: None, fields: &[], says }
}

const SIZE: Field = field("size", COUNT, Absent::Required);
const STRIDE: Field = field("stride", COUNT, Absent::Like("size"));

/// All kinds, in the order in which they are explained.
pub(crate) const KINDS: &[LayerKind] = &[
    LayerKind {
        name: "conv",
        prefix: Some("conv"),
        short: None,
        fields: &[
            field("out", COUNT, Absent::Required),
            field("kernel", COUNT, Absent::Required),
            field("stride", COUNT, Absent::Whole(1)),
            field("padding", Accepts::Padding, Absent::Whole(0)),
            field("bias", Accepts::Truth, Absent::Truth(true)),
        ],
        says: "convolution of an image; padding \"same\" keeps its size at stride 1",
    },
    LayerKind {
        name: "grouped-conv",
        prefix: Some("conv"),
        short: None,
        fields: &[
            field("out", COUNT, Absent::Required),
            field("kernel", COUNT, Absent::Required),
            field("stride", COUNT, Absent::Whole(1)),
            field("padding", Accepts::Padding, Absent::Whole(0)),
            field("groups", COUNT, Absent::Required),
            field("bias", Accepts::Truth, Absent::Truth(true)),
        ],
        says: "convolution of each group of channels; with as many groups as channels depthwise",
    },
    LayerKind {
        name: "linear",
        prefix: Some("linear"),
        short: Some("out"),
        fields: &[
            field("out", Accepts::Classes, Absent::Required),
            field("bias", Accepts::Truth, Absent::Truth(true)),
        ],
        says: "y = W x + b, of features or at each position of a sequence; \"classes\" stands for their number",
    },
    plain("relu", "max(x, 0)"),
    plain("relu6", "min(max(x, 0), 6)"),
    plain("hard-sigmoid", "min(max(x + 3, 0), 6) / 6, nearly a sigmoid"),
    plain("hard-swish", "x hard-sigmoid(x)"),
    plain("sigmoid", "1 / (1 + e^-x)"),
    plain("silu", "x sigmoid(x), also called swish"),
    plain("gelu", "x P(X <= x) for a standard normal X"),
    LayerKind {
        name: "max-pool",
        prefix: None,
        short: Some("size"),
        fields: &[SIZE, STRIDE, field("partial", Accepts::Truth, Absent::Truth(false))],
        says: "the maximum of each window of an image; partial ones at the end if wanted",
    },
    LayerKind {
        name: "avg-pool",
        prefix: None,
        short: Some("size"),
        fields: &[SIZE, STRIDE],
        says: "the mean of each window of an image",
    },
    plain("global-avg-pool", "the mean of each channel: features of an image"),
    LayerKind {
        name: "zero-pad",
        prefix: None,
        short: Some("pixels"),
        fields: &[field("pixels", COUNT, Absent::Required)],
        says: "rows and columns of zeros around an image",
    },
    plain("flatten", "everything into one row of features"),
    LayerKind {
        name: "batch-norm",
        prefix: Some("norm"),
        short: None,
        fields: &[],
        says: "each channel normalised over the batch, with running statistics",
    },
    LayerKind {
        name: "batch-norm-with",
        prefix: Some("norm"),
        short: None,
        fields: &[
            field("epsilon", Accepts::Number(Least::Positive), Absent::Number(1e-5)),
            field("momentum", Accepts::Share, Absent::Number(0.1)),
        ],
        says: "batch-norm whose statistics are computed otherwise",
    },
    LayerKind {
        name: "group-norm",
        prefix: Some("norm"),
        short: Some("groups"),
        fields: &[field("groups", COUNT, Absent::Required)],
        says: "groups of channels normalised within each sample",
    },
    LayerKind {
        name: "local-response-norm",
        prefix: None,
        short: Some("size"),
        fields: &[
            SIZE,
            field("alpha", Accepts::Number(Least::Zero), Absent::Number(1e-4)),
            field("beta", Accepts::Number(Least::Zero), Absent::Number(0.75)),
            field("k", Accepts::Number(Least::Positive), Absent::Number(1.0)),
        ],
        says: "each pixel divided by a power of the squares of neighbouring channels",
    },
    LayerKind {
        name: "layer-norm",
        prefix: Some("norm"),
        short: None,
        fields: &[field("epsilon", Accepts::Number(Least::Positive), Absent::Number(1e-5))],
        says: "features normalised within each sample, or at each position of a sequence",
    },
    LayerKind {
        name: "simplex-etf",
        prefix: Some("etf"),
        short: None,
        fields: &[],
        says: "a fixed classifier: cosines of \"classes\" features with the corners of a simplex, times one learned factor",
    },
    LayerKind {
        name: "dropout",
        prefix: None,
        short: Some("rate"),
        fields: &[field("rate", Accepts::Share, Absent::Required)],
        says: "so large a share of values left out in training, by masks from the run's seed",
    },
    LayerKind {
        name: "residual",
        prefix: None,
        short: Some("body"),
        fields: &[
            field("body", Accepts::Layers, Absent::Required),
            field("shortcut", Accepts::Layers, Absent::NoLayers),
        ],
        says: "body(x) + shortcut(x), both lists of layers; no shortcut is x itself",
    },
    LayerKind {
        name: "squeeze-excite",
        prefix: None,
        short: Some("body"),
        fields: &[field("body", Accepts::Layers, Absent::Required)],
        says: "each channel times what body, a list of layers, makes of the channels' means, [c, 1, 1]",
    },
    LayerKind {
        name: "embedding",
        prefix: Some("embedding"),
        short: None,
        fields: &[
            field("vocabulary", Accepts::Classes, Absent::Required),
            field("dim", COUNT, Absent::Required),
        ],
        says: "a vector for each token; \"classes\" if the tokens are what is predicted",
    },
    LayerKind {
        name: "lstm",
        prefix: Some("lstm"),
        short: Some("hidden"),
        fields: &[field("hidden", COUNT, Absent::Required)],
        says: "memory along a sequence, with a state of this many values",
    },
    plain("to-sequence", "the pixels of an image as a sequence, row by row"),
    LayerKind {
        name: "class-token",
        prefix: Some("class-token"),
        short: None,
        fields: &[],
        says: "a learned position before the others",
    },
    LayerKind {
        name: "positions",
        prefix: Some("positions"),
        short: None,
        fields: &[],
        says: "adds a learned value to each value of a sequence",
    },
    plain("sinusoidal-positions", "adds waves to a sequence, of another length for each feature"),
    LayerKind {
        name: "attention",
        prefix: None,
        short: Some("heads"),
        fields: &[
            field("heads", COUNT, Absent::Required),
            field("causal", Accepts::Truth, Absent::Truth(false)),
        ],
        says: "of 3 d features, queries, keys and values, to d; causal: no position sees a later one",
    },
    plain("first-position", "the features of a sequence's first position, such as a class token"),
    plain("mean-positions", "the mean over the positions of a sequence"),
];

/// The kind of this name.
pub(crate) fn find(name: &str) -> Option<&'static LayerKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// The names of all kinds.
pub(crate) fn names() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

impl LayerKind {
    /// Its settings, in words.
    pub(crate) fn accepts(&self) -> Vec<&'static str> {
        self.prefix.map(|_| "name").into_iter().chain(self.fields.iter().map(|field| field.name)).collect()
    }
}

impl Accepts {
    /// In words.
    pub(crate) fn says(self) -> String {
        match self {
            Self::Whole(low, high) => format!("a whole number, at least {low} and at most {high}"),
            Self::Classes => {
                format!("a whole number, at least 1 and at most {LIMIT}, or \"classes\" for their number")
            }
            Self::Padding => "a whole number of at least 0, less than kernel, or \"same\"".to_owned(),
            Self::Number(Least::Zero) => format!("a number of at least 0 and at most {GREATEST}"),
            Self::Number(Least::Positive) => format!("a number greater than 0 and at most {GREATEST}"),
            Self::Share => "a number of at least 0 and less than 1".to_owned(),
            Self::Truth => "true or false".to_owned(),
            Self::Layers => "a list of layers, [...]".to_owned(),
        }
    }

    /// Whether it accepts a number that need not be whole.
    pub(crate) fn contains(self, number: f64) -> bool {
        match self {
            // NaN is in no range.
            Self::Number(Least::Zero) => (0.0..=GREATEST).contains(&number),
            Self::Number(Least::Positive) => number > 0.0 && number <= GREATEST,
            // Not what f32, in which it is computed, takes for 1 either.
            Self::Share => number >= 0.0 && (number as f32) < 1.0,
            _ => false,
        }
    }

    /// The range of its whole numbers.
    pub(crate) fn range(self) -> std::ops::RangeInclusive<i64> {
        match self {
            Self::Whole(low, high) => low..=high,
            Self::Padding => 0..=LIMIT,
            _ => 1..=LIMIT,
        }
    }
}

/// A kind of layer, for help.
pub(crate) struct LayerHelp {
    pub(crate) name: &'static str,
    /// Its settings with what they are where they are left out.
    pub(crate) settings: String,
    /// What it does.
    pub(crate) says: &'static str,
}

/// All kinds of layers, explained.
pub(crate) fn layer_kinds() -> impl Iterator<Item = LayerHelp> {
    KINDS.iter().map(|kind| {
        let field = |field: &Field| match field.absent {
            Absent::Required if kind.short == Some(field.name) => format!("{} (may stand alone)", field.name),
            Absent::Required => field.name.to_owned(),
            Absent::Whole(number) => format!("{} = {number}", field.name),
            Absent::Number(number) => format!("{} = {number}", field.name),
            Absent::Truth(truth) => format!("{} = {truth}", field.name),
            Absent::Like(other) => format!("{} = {other}", field.name),
            Absent::NoLayers => format!("{} = []", field.name),
        };
        let settings: Vec<String> = kind.fields.iter().map(field).collect();
        LayerHelp { name: kind.name, settings: settings.join(", "), says: kind.says }
    })
}
