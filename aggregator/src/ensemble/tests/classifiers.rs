//! Members that are classifiers, and have their answers alone in common.

use shared::algorithm::OneShot as _;
use shared::algorithm::ensemble::Ensemble;
use shared::ensemble::fusion::log_softmax;

use super::*;

/// The same network with the last layer that is configured, which has a bias.
fn network() -> Architecture {
    let mut network = architecture(5);
    network.head = vec![Layer::Linear { name: "out".into(), out: 3, bias: true }];
    network
}

fn classifier(seed: u64) -> ParamSet {
    network().initialise(|tensor| Seed::root(seed).derive(tensor).rng()).unwrap()
}

fn described(weights: Weights, start: u64) -> Manifest {
    Manifest {
        architecture: network(),
        answering: Ensemble::default().answering(),
        weights,
        start: digest(&classifier(start)),
        ..manifest()
    }
}

/// What the members themselves say: a row of logits for each sample.
fn logits(params: &ParamSet, view: &View) -> Vec<Vec<f64>> {
    let (mut x, mut y) = (Vec::new(), Targets::default());
    view.fill(&(0..view.len()).collect::<Vec<_>>(), &mut x, &mut y);
    let mut whole = Network::new(&network(), params, &Backend::cpu()).unwrap();
    whole.forward(&x, &[view.len(), 1, 2, 2], models::Mode::Evaluation).unwrap();
    whole.logits().chunks(3).map(|row| row.iter().map(|&value| f64::from(value)).collect()).collect()
}

fn fused(bundle: &Bundle, view: &View, fusion: Fusion) -> Vec<Vec<f64>> {
    let preparation = Preparation::default();
    let (mut all, question) =
        (Vec::new(), Question { view, preparation: &preparation, batch: 4, fusions: &[fusion] });
    let visit = &mut |answers: &Answers<'_>| {
        for fused in &answers.fused[&fusion] {
            let total: f64 = fused.log_probabilities.iter().map(|log| log.exp()).sum();
            assert!((total - 1.0).abs() < 1e-9);
            all.push(fused.vector.clone());
        }
    };
    bundle.answer(&question, visit).unwrap();
    all
}

/// To the bit: nothing is normalised, and the sums are exact.
#[test]
fn one_classifier_and_two_equal_ones_answer_as_their_network_does() {
    let folder = tempfile::tempdir().unwrap();
    let (view, alone) = (samples(11), classifier(1));
    let manifest = described(Weights::Samples, 0);
    let one = written(folder.path(), &manifest, &[(7, alone.clone())]);
    assert_eq!(fused(&one, &view, Fusion::Logits), logits(&alone, &view));
    let question =
        Question { view: &view, preparation: &Preparation::default(), batch: 4, fusions: &[Fusion::Logits] };
    let (by, members) = one.evaluate(&question).unwrap();
    assert_eq!(by[&Fusion::Logits], members[0]);
    let two = written(folder.path(), &manifest, &[(7, alone.clone()), (7, alone.clone())]);
    assert_eq!(fused(&two, &view, Fusion::Logits), logits(&alone, &view));
}

#[test]
fn answers_are_averaged_by_samples_or_all_alike() {
    let folder = tempfile::tempdir().unwrap();
    let (view, models) = (samples(9), [classifier(1), classifier(2)]);
    let own = models.each_ref().map(|model| logits(model, &view));
    for (weights, shares) in [(Weights::Samples, [0.75, 0.25]), (Weights::Uniform, [0.5, 0.5])] {
        let members = [(30, models[0].clone()), (10, models[1].clone())];
        let bundle = written(folder.path(), &described(weights, 0), &members);
        assert_eq!(bundle.manifest.weights, weights);
        let own_of = |fusion, row: &[f64]| match fusion {
            Fusion::Probabilities => log_softmax(row).iter().map(|log| log.exp()).collect(),
            _ => row.to_vec(),
        };
        for fusion in [Fusion::Logits, Fusion::Probabilities] {
            for (row, found) in fused(&bundle, &view, fusion).iter().enumerate() {
                let [a, b] = own.each_ref().map(|own| own_of(fusion, &own[row]));
                for (class, found) in found.iter().enumerate() {
                    let expected = shares[0] * a[class] + shares[1] * b[class];
                    assert!((found - expected).abs() < 1e-7, "{weights:?} {fusion}: {found} {expected}");
                }
            }
        }
    }
}

/// A member with logits without bound outvotes the others by them, and has one vote by its probabilities.
#[test]
fn one_member_cannot_outvote_the_others_by_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let mut sure = classifier(3);
    sure.get_mut("head.out.bias").unwrap().values_mut()[2] = 5e4;
    let members = [(5, classifier(1)), (5, classifier(1)), (1, sure)];
    let bundle = written(folder.path(), &described(Weights::Samples, 0), &members);
    let (view, preparation) = (samples(12), Preparation::default());
    let fusions = bundle.manifest.answering.head.fusions();
    let question = Question { view: &view, preparation: &preparation, batch: 4, fusions };
    let (by, alone) = bundle.evaluate(&question).unwrap();
    assert_eq!(by[&Fusion::Logits].correct, alone[2].correct);
    assert!(by[&Fusion::Logits].loss > 100.0 && by[&Fusion::Probabilities].loss < 10.0, "{by:?}");
}

#[test]
fn a_file_of_classifiers_has_no_prototypes_and_no_fusion_of_features() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = written(folder.path(), &described(Weights::Uniform, 0), &[(5, classifier(1))]);
    assert!(bundle.prototypes.is_empty() && bundle.manifest == with_members(&bundle, Weights::Uniform));
    let bytes = fs::read(bundle.path()).unwrap();
    let (tensors, metadata) = codec::from_bytes(&bytes, Limits::default()).unwrap();
    assert_eq!(tensors.len(), classifier(1).len());
    let edited = |from: &str, to: &str| {
        assert!(metadata["ensemble"].contains(from), "{metadata:?}");
        refused(&changed(&bundle, |_, metadata| {
            let text = metadata["ensemble"].replace(from, to);
            metadata.insert("ensemble".into(), text);
        }))
        .to_string()
    };
    let size = edited("\"logits\"", "\"size\"");
    assert!(size.contains("not fused by size: choose logits or probabilities"), "{size}");
    assert!(edited("\"uniform\"", "\"loss\"").contains("losses"));
    // A program that knows prototypes alone misses them.
    assert!(edited("\"head\":\"classifier\",", "").contains("not linear without bias"));
    // What had no such entries has none now, so that earlier programs read it.
    let (_, earlier) = codec::from_bytes(
        &fs::read(self::bundle(folder.path(), &[(5, model(1))]).path()).unwrap(),
        Limits::default(),
    )
    .unwrap();
    assert!(!earlier["ensemble"].contains("head") && !earlier["ensemble"].contains("weights"), "{earlier:?}");
}

fn with_members(bundle: &Bundle, weights: Weights) -> Manifest {
    Manifest { members: bundle.manifest.members.clone(), ..described(weights, 0) }
}

#[test]
fn classifiers_from_any_start_join_and_others_do_not() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let at = |folder: usize, start: u64, models: &[u64]| {
        let members: Vec<_> = models.iter().map(|&seed| (5, classifier(seed))).collect();
        written(folders[folder].path(), &described(Weights::Samples, start), &members)
    };
    let (first, second) = (at(0, 0, &[1]), at(1, 9, &[3, 4]));
    let extended = extend(&Disk, &first, &second, first.path()).unwrap();
    assert_eq!(extended, Extended { members: 2, added: 1, replaced: 1 });
    let joined = Bundle::open(Arc::new(Disk), first.path()).unwrap();
    assert_eq!(joined.member(1).unwrap(), classifier(4));
    let prototypes = bundle(folders[2].path(), &[(5, model(1))]);
    // Their networks differ as well, by the bias: what the last layer is counts first only where they do not.
    assert!(extend(&Disk, &joined, &prototypes, first.path()).is_err());
    assert_eq!(leave_out(&Disk, &joined, &[client(0)].into(), first.path()).unwrap(), 1);
}

#[test]
fn a_classifier_with_numbers_that_cannot_be_summed_is_no_member() {
    let (answering, network) = (Ensemble::default().answering(), network());
    assert_eq!(answering.head, Head::Classifier);
    assert!(is_sound(&network, &classifier(1), (answering, 3), None).unwrap());
    let mut far = classifier(1);
    far.get_mut("head.out.bias").unwrap().values_mut().fill(1e10);
    assert!(!is_sound(&network, &far, (answering, 3), None).unwrap());
}
