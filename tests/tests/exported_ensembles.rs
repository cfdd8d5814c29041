//! Exported ensembles in Python: each fusion answers as it does here.

use std::path::Path;
use std::sync::Arc;

use aggregator::ensemble::{
    Bundle, EnsembleError, Manifest, Member, Origin, Question, Values, digest, write,
};
use aggregator::export::onnx::Preparing;
use aggregator::export::{Subject, Target};
use aggregator::storage::Disk;
use federation_tests::exported::{Exports, Form, random_samples};
use federation_tests::python::{with_numpy, with_onnx, with_torch};
use models::{Architecture, Layer, ParamSet};
use shared::aggregation::Weights;
use shared::algorithm::{Answering, Head};
use shared::data::View;
use shared::id::ClientId;
use shared::seed::Seed;
use shared::spec::{DataSpec, RunSpec};

struct InMemory(ParamSet);

impl Origin for InMemory {
    fn pass(&self, visit: &mut Values<'_>) -> Result<(), EnsembleError> {
        self.0.iter().try_for_each(|(name, array)| visit(name, array.values()))
    }
}

/// Three members with a projection, so that not all of them is the extractor.
fn bundle(folder: &Path, head: Head, weights: Weights) -> Bundle {
    let mut architecture = Architecture::by_name("moon-cnn", &[1, 28, 28], 10).unwrap();
    if head == Head::Prototypes {
        architecture.head = vec![Layer::Linear { name: "prototypes".to_owned(), out: 10, bias: false }];
    }
    let fusion = head.fusions()[0];
    let model = |seed: u64| architecture.initialise(|name| Seed::root(seed).derive(name).rng()).unwrap();
    let manifest = Manifest {
        data: DataSpec { shape: vec![1, 28, 28], class_names: Vec::new(), ..RunSpec::example("fafi").data },
        answering: Answering { fusion, temperature: 0.07, head, ..Answering::default() },
        noise_seed: 3,
        weights,
        start: digest(&model(0)),
        members: Vec::new(),
        architecture: architecture.clone(),
    };
    let members: Vec<_> = [70, 1000, 4]
        .into_iter()
        .enumerate()
        .map(|(number, samples)| {
            let client = ClientId::from_bytes([number as u8 + 1; 16]);
            let origin: Box<dyn Origin> = Box::new(InMemory(model(1 + number as u64)));
            (Member { client, samples, run: "a-run".to_owned() }, origin)
        })
        .collect();
    let path = folder.join(format!("{head:?}-{weights:?}.safetensors"));
    write(&Disk, &path, &manifest, &members).unwrap();
    Bundle::open(Arc::new(Disk), &path).unwrap()
}

fn every_fusion(form: impl Into<Form>, python: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let mut exports = Exports::new(folder.path(), form);
    let each = [
        (Head::Prototypes, Weights::Samples),
        (Head::Classifier, Weights::Samples),
        (Head::Classifier, Weights::Uniform),
    ];
    let bundles = each.map(|(head, weights)| bundle(folder.path(), head, weights));
    for bundle in &bundles {
        add_every_fusion(&mut exports, bundle);
    }
    exports.check(python);
}

fn add_every_fusion(exports: &mut Exports<'_>, bundle: &Bundle) {
    let samples = random_samples(&bundle.manifest.architecture, &[1, 28, 28]);
    let view = View::whole(samples.clone().into());
    for &fusion in bundle.manifest.answering.head.fusions() {
        let mut expected = Vec::new();
        // Each sample alone, as the first one: with the noise of the export.
        for sample in 0..view.len() as u32 {
            let question = Question {
                view: &view.part(&[sample]),
                preparation: &bundle.manifest.data.preparation,
                batch: 1,
                fusions: &[fusion],
            };
            let mut take = |answers: &aggregator::ensemble::Answers<'_>| {
                let fused = answers.fused.values().flatten();
                expected.extend(fused.flat_map(|fused| &fused.log_probabilities).map(|&log| log as f32));
            };
            bundle.answer(&question, &mut take).unwrap();
        }
        let subject = Subject::Ensemble(bundle, fusion);
        let name =
            format!("{fusion} fusion, {:?} {:?}", bundle.manifest.answering.head, bundle.manifest.weights);
        exports.add(&name, subject, &samples, &expected, true);
    }
}

#[test]
fn ensembles_in_torch_answer_as_ours_do() {
    match with_torch() {
        Ok(python) => every_fusion(Target::Torch, &python),
        Err(reason) => println!("skipped: {reason}"),
    }
}

#[test]
fn ensembles_in_numpy_answer_as_ours_do() {
    match with_numpy() {
        Ok(python) => every_fusion(Target::Numpy, &python),
        Err(reason) => println!("skipped: no Python with numpy: {reason}"),
    }
}

#[test]
fn ensembles_in_onnx_answer_as_ours_do() {
    match with_onnx() {
        Ok(python) => every_fusion(Preparing::Inside, &python),
        Err(reason) => println!("skipped: {reason}"),
    }
}
