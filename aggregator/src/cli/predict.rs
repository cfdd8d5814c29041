//! `aggregator predict`: what a trained model, or an ensemble of them, says about each sample.

use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::Path;

use clap::Args;
use models::{Backend, Evaluation, Network};
use shared::cli::{FormArgs, Predictions};
use shared::data::View;
use shared::prediction::{Row, Score, ValueError, ValueRow, predict_values};

use super::exit::Failure;
use super::load_model::{BATCH, ModelArgs, Opened, Usable, no_answer};
use super::parse::whole;
use super::terminal;
use crate::ensemble::Question;

#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    #[command(flatten)]
    given: ModelArgs,
    /// Predict this many samples, from the first [default: all, of which a table shows 20]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=u32::MAX.into()), allow_negative_numbers = true)]
    limit: Option<u32>,
    #[command(flatten)]
    form: FormArgs,
}

pub(super) fn predict(arguments: &PredictArgs) -> Result<(), Failure> {
    let given = &arguments.given;
    let Opened { usable, view, called, names } = given.open()?;
    let limit = arguments.limit.map_or(view.len(), |limit| view.len().min(limit as usize));
    let view = view.part(&(0..limit as u32).collect::<Vec<_>>());
    let out = &mut BufWriter::new(io::stdout().lock());
    let mut printed = Printed {
        predictions: Predictions::new(out, &arguments.form, names, arguments.limit.is_some()),
        score: Score::default(),
        written: Ok(()),
    };
    match &usable {
        Usable::Model(architecture, params, _) => {
            let mut network = Network::new(architecture, params, &Backend::cpu())?;
            if !architecture.task.is_classification() {
                arguments.form.all_at_once().map_err(|reason| Failure::Usage(reason.to_owned()))?;
                let Printed { mut predictions, .. } = printed;
                let mut print = |row: &ValueRow| predictions.values(row);
                let found = values(&mut network, &usable, &view, &given.model, &mut print)?;
                return terminal::written(predictions.evaluation(&found, &format!(", of {called}")));
            }
            one(&mut network, &usable, &view, &given.model, &mut printed)?;
        }
        Usable::Ensemble(bundle) => {
            let fusion = given.fusion.unwrap_or(bundle.manifest.answering.fusion);
            let preparation = usable.preparation();
            let question =
                Question { view: &view, preparation: &preparation, batch: BATCH, fusions: &[fusion] };
            let mut sample = 0;
            bundle.answer(&question, &mut |answers| {
                for (at, fused) in answers.fused.values().flatten().enumerate() {
                    printed.row(&Row {
                        sample,
                        class: fused.class() as u32,
                        probabilities: fused.log_probabilities.iter().map(|log| log.exp()).collect(),
                        label: answers.labels.get(at).copied(),
                        gate: None,
                    });
                    sample += 1;
                }
            })?;
        }
    }
    terminal::written(printed.finish(&called))
}

/// Predictions that are printed as they are made: those of a long text have no room in memory together.
struct Printed<'a> {
    predictions: Predictions<'a>,
    score: Score,
    /// The first error of standard output.
    written: io::Result<()>,
}

impl Printed<'_> {
    fn row(&mut self, row: &Row) {
        self.score.add(row);
        if self.written.is_ok() {
            self.written = self.predictions.row(row);
        }
    }

    fn finish(self, called: &str) -> io::Result<()> {
        self.written?;
        self.predictions.score(self.score, &format!(" of {called}"))
    }
}

/// Prints what one model says. A reader that has gone away ends it.
fn one(
    network: &mut Network,
    usable: &Usable,
    view: &View,
    path: &Path,
    printed: &mut Printed<'_>,
) -> Result<(), Failure> {
    let (preparation, input) = (usable.preparation(), usable.architecture().input.clone());
    let positions: Vec<usize> = (0..view.len()).collect();
    for chunk in positions.chunks(BATCH) {
        let batch = preparation.batch(view, chunk, &input).map_err(Failure::internal)?;
        let predictions = models::predict(network, &batch)?;
        if predictions.iter().flat_map(|prediction| &prediction.probabilities).any(|share| !share.is_finite())
        {
            return Err(no_answer(path));
        }
        // A text has a prediction for each of its positions.
        let each = predictions.len() / chunk.len();
        for (at, prediction) in predictions.into_iter().enumerate() {
            printed.row(&Row {
                sample: chunk[at / each],
                class: prediction.class,
                probabilities: prediction.probabilities.into_iter().map(f64::from).collect(),
                label: batch.y().get(at).copied(),
                gate: None,
            });
        }
        if printed.written.is_err() {
            break;
        }
    }
    Ok(())
}

/// Passes what a model says whose task is not classification to `each`. A reader that has gone away ends it.
pub(super) fn values(
    network: &mut Network,
    usable: &Usable,
    view: &View,
    path: &Path,
    each: &mut dyn FnMut(&ValueRow) -> io::Result<()>,
) -> Result<Evaluation, Failure> {
    let mut written = Ok(());
    let mut row = |row: ValueRow| {
        written = each(&row);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let found = predict_values(network, &usable.preparation(), view, BATCH, &mut row);
    terminal::written(written)?;
    found.map_err(|error| match error {
        ValueError::NotFinite { .. } => no_answer(path),
        ValueError::Samples(error) => Failure::internal(error),
        ValueError::Model(error) => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use models::Architecture;
    use shared::cli::Names;
    use shared::data::{Dataset, Samples};

    use super::*;

    /// A reader that has gone away.
    struct Gone;

    impl io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn predictions_are_printed_as_they_are_made_and_end_with_their_reader() {
        let architecture = Architecture::by_name("linear", &[2], 3).expect("built in");
        let params = architecture.initialise(|name| shared::seed::Seed::root(1).derive(name).rng());
        let params = params.expect("a network");
        let mut network = Network::new(&architecture, &params, &Backend::cpu()).expect("it fits");
        let usable = Usable::Model(Box::new(architecture), params, None);
        let count = 3 * BATCH;
        let data = Dataset::labelled(vec![2], Samples::Floats(vec![0.5; 2 * count]), vec![0; count], 3);
        let data = Arc::new(data.expect("as many labels as samples"));
        let form = FormArgs { csv: true, ..FormArgs::default() };
        let mut samples = |out: &mut dyn io::Write| {
            let view = View::whole(data.clone());
            let predictions = Predictions::new(out, &form, Names::default(), false);
            let mut printed = Printed { predictions, score: Score::default(), written: Ok(()) };
            one(&mut network, &usable, &view, Path::new("m"), &mut printed).expect("it answers");
            (printed.score.samples, printed.written.is_ok())
        };
        let mut all = Vec::new();
        assert_eq!(samples(&mut all), (count, true));
        assert_eq!(String::from_utf8_lossy(&all).lines().count(), count + 1);
        assert_eq!(samples(&mut Gone), (BATCH, false), "the first ones were printed before others were made");
    }
}
