//! What can be wrong with data: each variant says what was found, and what would be right.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::dataset::MAX_CLASSES;

/// Why data cannot be used. All of these are for the person who supplied the data or named its folder.
#[derive(Debug, Error)]
pub enum DataError {
    /// The named folder does not exist.
    #[error("{}: no such directory; name the folder that holds the data files", .path.display())]
    DirectoryAbsent {
        /// The folder as it was named.
        path: PathBuf,
    },
    /// What was named is there, but no folder.
    #[error("{}: is not a directory; name the folder that holds the data files", .path.display())]
    NotDirectory {
        /// What was named.
        path: PathBuf,
    },
    /// The folder holds neither the plain nor the compressed form of a file.
    #[error("{}: contains neither `{plain}` nor `{plain}.gz`", .directory.display())]
    FileAbsent {
        /// The folder that was searched.
        directory: PathBuf,
        /// The plain file's name; the compressed one has `.gz` appended.
        plain: String,
    },
    /// The folder holds samples, and neither the plain nor the compressed form of the file of their labels.
    #[error("{}: holds samples without their labels: neither `{plain}` nor `{plain}.gz` is there", .directory.display())]
    LabelsAbsent {
        /// The folder that was searched.
        directory: PathBuf,
        /// The plain file's name; the compressed one has `.gz` appended.
        plain: String,
    },
    /// Something is wrong inside one file.
    #[error("{}: {problem}", .path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        #[source]
        problem: Box<DataError>,
    },
    /// The operating system refused, or compressed data is damaged.
    #[error("cannot be read, written or decompressed: {0}")]
    Io(#[from] io::Error),
    /// The first four bytes do not announce the expected kind of file.
    #[error("is not an IDX file of {expected_kind}: it starts with {found:#010x}, not {expected:#010x}")]
    Magic {
        /// `images` or `labels`.
        expected_kind: &'static str,
        /// The number such a file starts with.
        expected: u32,
        /// The number found.
        found: u32,
    },
    /// The file ends inside its header.
    #[error("ends inside its header: {needed} bytes needed, {found} found")]
    HeaderTruncated {
        /// Bytes in the header.
        needed: usize,
        /// Bytes found.
        found: usize,
    },
    /// The file ends before the content that its header declares.
    #[error("is truncated: its header declares {declared} bytes of content, {found} follow")]
    Truncated {
        /// Bytes that the header declares.
        declared: u64,
        /// Bytes found.
        found: u64,
    },
    /// The file continues after the content that its header declares.
    #[error("continues after the {declared} bytes of content that its header declares")]
    TrailingBytes {
        /// Bytes that the header declares.
        declared: u64,
    },
    /// A header declares, or a caller asks for, more than this program is willing to hold in memory.
    #[error("would take {dimensions:?} bytes, more than the limit of {limit} bytes")]
    TooLarge {
        /// The dimensions, samples first.
        dimensions: Vec<usize>,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The two files of a split do not belong together.
    #[error(
        "{} holds {images} images but {} holds {labels} labels: they are not of the same data set",
        .images_path.display(), .labels_path.display()
    )]
    CountsDiffer {
        /// The file of images.
        images_path: PathBuf,
        /// The file of labels.
        labels_path: PathBuf,
        /// Number of images.
        images: usize,
        /// Number of labels.
        labels: usize,
    },
    /// There is no sample.
    #[error("holds no sample")]
    Empty,
    /// There are samples, and all were left out.
    #[error("holds no sample that can be used; {count} left out, the first: {first}")]
    AllLeftOut {
        /// How many.
        count: usize,
        /// Why the first of them was.
        first: String,
    },
    /// More samples than an index of 32 bits can tell apart.
    #[error("holds {found} samples, more than the {} that can be indexed", u32::MAX)]
    TooManySamples {
        /// Number of samples.
        found: usize,
    },
    /// The shape of a sample is not `[channels, height, width]` with no zero among them.
    #[error("a sample has shape [channels, height, width], all at least 1; found {found:?}")]
    Shape {
        /// The shape found.
        found: Vec<usize>,
    },
    /// The shape of a sample has no axis, or one without values.
    #[error("a sample has at least one value; found shape {found:?}")]
    EmptyShape {
        /// The shape found.
        found: Vec<usize>,
    },
    /// The number of values does not fit the number of labels and the shape.
    #[error("{labels} labels with samples of shape {shape:?} need another number of values than {values}")]
    ValueCount {
        /// Number of labels.
        labels: usize,
        /// Shape of a sample.
        shape: Vec<usize>,
        /// Number of values.
        values: usize,
    },
    /// A feature is NaN or infinite.
    #[error("value {column} of sample {row} is not a finite number (both counted from 0)")]
    NotFinite {
        /// The sample, counted from 0.
        row: usize,
        /// The value within it, counted from 0.
        column: usize,
    },
    /// The number of classes is zero, or more than labels can tell apart.
    #[error("{found} classes: between 1 and {MAX_CLASSES} are possible")]
    Classes {
        /// The number of classes asked for.
        found: usize,
    },
    /// A label is not the number of a class.
    #[error("sample {row} has label {label}, but with {classes} classes labels run from 0 to {}", classes - 1)]
    Label {
        /// The sample, counted from 0.
        row: usize,
        /// Its label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
    /// A sample was asked for that does not exist.
    #[error("sample {index} does not exist: there are {samples}, counted from 0")]
    Index {
        /// The sample asked for.
        index: usize,
        /// The number of samples.
        samples: usize,
    },
    /// IDX files of this family hold grey images of at most 256 classes only.
    #[error(
        "{kind} of shape {shape:?} with {classes} classes cannot be written as IDX files, which hold grey images of at most 256"
    )]
    NotIdx {
        /// What the samples are.
        kind: &'static str,
        /// Shape of one.
        shape: Vec<usize>,
        /// Their classes.
        classes: usize,
    },
    /// A file of fixed-size records has another length than a whole number of them.
    #[error(
        "has {found} bytes, which is no whole number of records of {record} bytes, at least one: is the copy complete?"
    )]
    Records {
        /// Bytes of a record.
        record: usize,
        /// Bytes found.
        found: u64,
    },
    /// A text is not UTF-8.
    #[error("is not UTF-8 text: byte {at} begins no character")]
    NotUtf8 {
        /// The first byte that is wrong, counted from 0.
        at: usize,
    },
    /// A folder of text holds none, or several.
    #[error("{}: holds {found} files whose names end in .txt; put one text into it", .directory.display())]
    NotOneText {
        /// The folder.
        directory: PathBuf,
        /// How many there are.
        found: usize,
    },
    /// Nobody says enough for a sample.
    #[error(
        "no role says more than {window} characters in this split, which a sample takes: the text is too short"
    )]
    ShortText {
        /// Characters of a sample.
        window: usize,
    },
    /// Something is wrong with one sample of a file.
    #[error("{place}: {problem}")]
    At {
        /// Where: `line 3`, `sample 0`.
        place: String,
        /// What is wrong there.
        #[source]
        problem: Box<DataError>,
    },
    /// A label is none of those there are.
    #[error("label {label:?} is none of {known}")]
    UnknownLabel {
        /// The label as it is written, shortened.
        label: String,
        /// Those there are.
        known: String,
    },
    /// A table cannot be read on.
    #[error("cannot be read as CSV: {reason}")]
    Csv {
        /// What the reader says.
        reason: String,
    },
    /// Not exactly one column holds the labels.
    #[error("{found} columns are named `{column}`; there are {columns}; name the one that holds the labels")]
    LabelColumn {
        /// The name looked for.
        column: String,
        /// Columns of this name.
        found: usize,
        /// Those there are.
        columns: String,
    },
    /// The features of the test split are not those of the training split beside it, or stand in another order.
    #[error(
        "has the feature `{found}` where train.csv has `{expected}`: put the columns of both in one order, since a model knows them by \
         their places"
    )]
    ColumnOrder {
        /// The first feature of the test split that is another one.
        found: String,
        /// The one that the training split has there.
        expected: String,
    },
    /// The columns beside the labels do not make samples of the shape.
    #[error("{columns} columns of features do not make samples of shape {shape:?}")]
    Columns {
        /// Columns but for the labels.
        columns: usize,
        /// Shape of a sample.
        shape: Vec<usize>,
    },
    /// A row is too short or too long.
    #[error("has {found} fields where the header has {columns}")]
    Fields {
        /// Fields of the row.
        found: usize,
        /// Fields of the header.
        columns: usize,
    },
    /// A field of a table goes on in the next line.
    #[error(
        "a quotation mark is not closed, and hides what follows: close it in the same line, or write it twice if it belongs to \
         the text"
    )]
    OpenQuote,
    /// A row has no label.
    #[error("has no label in column `{column}`")]
    NoLabel {
        /// The column of the labels.
        column: String,
    },
    /// The model predicts more or less than there are labels.
    #[error(
        "labels of a sample: {labels}, predictions of the model for it: {predictions}; samples with 1 need a model that ends in \
         [classes] (flatten before its last linear layer), and text one that ends in [positions, classes]"
    )]
    OtherLabels {
        /// Labels of a sample.
        labels: usize,
        /// Predictions for a sample.
        predictions: usize,
    },
    /// A feature is no finite number.
    #[error("column `{column}` holds {found:?}, which is no finite number")]
    NotNumber {
        /// The column.
        column: String,
        /// What it holds, shortened.
        found: String,
    },
    /// A file is not safetensors.
    #[error("cannot be read or written as safetensors: {reason}")]
    Tensors {
        /// What the reader says.
        reason: String,
    },
    /// A tensor is missing.
    #[error("has no tensor `{name}`; there are {names}")]
    NoTensor {
        /// The tensor looked for.
        name: &'static str,
        /// Those there are.
        names: String,
    },
    /// A tensor has the wrong type or shape.
    #[error("tensor `{name}` is {found}; needed: {needed}")]
    Tensor {
        /// The tensor.
        name: &'static str,
        /// Its type and shape.
        found: String,
        /// What they must be.
        needed: String,
    },
    /// A file is no readable PNG or JPEG.
    #[error("cannot be decoded as PNG or JPEG: {reason}")]
    Image {
        /// What the decoder says.
        reason: String,
    },
    /// A file in a folder of images is not called like one.
    #[error("is no image: files of a class are named .png, .jpg or .jpeg")]
    NoImage,
    /// Something beside the folders of the classes.
    #[error("is no folder of a class, and only these are expected here")]
    NoClassFolder,
    /// A class without samples.
    #[error("is the folder of a class and holds no image; put images into it or remove it")]
    EmptyClass,
    /// Labels that cannot be left unread.
    #[error(
        "holds {format}, and a text labels itself: join without --unlabelled; where the run's labels are at the server, those \
         here are not used"
    )]
    LabelsInside {
        /// The format.
        format: String,
    },
    /// Nobody said which classes there are.
    #[error(
        "holds images by class: say the names of the classes, in the order that all clients of the run share"
    )]
    NoClassNames,
    /// Images have another number of channels.
    #[error("images are read with one channel or three, as in [3, 32, 32], and not as {shape:?}")]
    ImageShape {
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// Images of different sizes, and nobody said which size they are to have.
    #[error(
        "is {}x{} and the first image {}x{}: say which shape all are to be brought to",
        .found[0], .found[1], .first[0], .first[1]
    )]
    SizesDiffer {
        /// Height and width of this image.
        found: [usize; 2],
        /// Height and width of the first.
        first: [usize; 2],
    },
    /// A folder holds nothing that is known, or several things.
    #[error("{}: {found}; looked for {looked_for}", .directory.display())]
    Unclear {
        /// The folder.
        directory: PathBuf,
        /// What it holds.
        found: String,
        /// What it could hold.
        looked_for: String,
    },
    /// A folder holds samples, and none of the split that was asked for.
    #[error(
        "{}: holds no samples of the {wanted} split, but some of the {there} split; looked for {looked_for}",
        .directory.display()
    )]
    OtherSplit {
        /// The folder.
        directory: PathBuf,
        /// The split that was asked for.
        wanted: &'static str,
        /// The one that is there.
        there: &'static str,
        /// What it could hold.
        looked_for: String,
    },
    /// Samples of another shape than the run has.
    #[error(
        "holds samples of shape {found:?}, and {expected:?} is asked for; this format has its shape in its files"
    )]
    OtherShape {
        /// The shape that was said.
        expected: Vec<usize>,
        /// The shape found.
        found: Vec<usize>,
    },
    /// A file says itself how many classes there are, and another number was asked for.
    #[error(
        "holds samples of {found} classes, and a model for {expected} is asked for: set data.classes = {found}"
    )]
    OtherClasses {
        /// Those of the model.
        expected: usize,
        /// Those of the file.
        found: usize,
    },
    /// A folder lacks a file of the data set.
    #[error("{}: contains no `{name}`", .directory.display())]
    NoFile {
        /// The folder that was searched.
        directory: PathBuf,
        /// The file's name.
        name: String,
    },
}

impl DataError {
    /// Whether nothing but labels is missing: who needs none reads the samples alone.
    #[must_use]
    pub fn is_of_labels_absent(&self) -> bool {
        match self {
            Self::InFile { problem, .. } => problem.is_of_labels_absent(),
            Self::LabelsAbsent { .. }
            | Self::NoTensor { name: "y", .. }
            | Self::LabelColumn { found: 0, .. } => true,
            _ => false,
        }
    }

    /// Adds which file the problem is in.
    pub(super) fn in_file(self, path: impl Into<PathBuf>) -> Self {
        Self::InFile { path: path.into(), problem: Box::new(self) }
    }
}

/// The path of a file in a folder, both of which must be there.
pub(super) fn existing_file(directory: &Path, name: String) -> Result<PathBuf, DataError> {
    check_directory(directory)?;
    let path = directory.join(&name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(DataError::NoFile { directory: directory.to_path_buf(), name })
    }
}

/// Whether there is such a folder.
pub(super) fn check_directory(directory: &Path) -> Result<(), DataError> {
    let path = directory.to_path_buf();
    match (directory.is_dir(), directory.exists()) {
        (true, _) => Ok(()),
        (false, true) => Err(DataError::NotDirectory { path }),
        (false, false) => Err(DataError::DirectoryAbsent { path }),
    }
}
