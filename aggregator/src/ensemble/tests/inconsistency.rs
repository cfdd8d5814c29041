//! How far members are from saying the same.

use shared::algorithm::OneShot as _;
use shared::algorithm::ensemble::Ensemble;
use shared::data::Augmentation;

use super::*;

fn augmented() -> Preparation {
    let augmentation = Augmentation { horizontal_flip: 0.5, ..Augmentation::default() };
    Preparation { augmentation, ..Preparation::default() }
}

fn found(bundle: &Bundle, preparation: &Preparation, batch: usize) -> Inconsistency {
    let question = Question { view: &samples(40), preparation, batch, fusions: &[] };
    bundle.inconsistency(&question, &model(0)).unwrap()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn equal_members_say_the_same_and_each_pair_counts_alike() {
    let folder = tempfile::tempdir().unwrap();
    let of = |members: &[u64]| {
        let members: Vec<_> = members.iter().map(|&seed| (7, model(seed))).collect();
        found(&bundle(folder.path(), &members), &augmented(), 8)
    };
    let equal = of(&[1, 1, 1]);
    assert!(near(equal.inter.unwrap(), 0.0), "{equal:?}");
    assert!(near(equal.intra[0], equal.intra[2]) && equal.intra[0] > 1e-3, "{equal:?}");
    let [ab, ac, bc] = [[1, 2], [1, 3], [2, 3]].map(|pair| of(&pair).inter.unwrap());
    assert!(ab > 1e-6);
    let all = of(&[1, 2, 3]);
    assert!(near(all.inter.unwrap(), (ab + ac + bc) / 3.0), "{all:?} {ab} {ac} {bc}");
    assert_eq!(of(&[1]).inter, None);
    // The start in itself is what a member that has learned nothing is.
    assert!(near(of(&[0]).intra[0], of(&[1]).intra_of_start.unwrap()));
    // The batches and the threads change nothing.
    let members = [(7, model(1)), (7, model(2))];
    let bundle = bundle(folder.path(), &members);
    assert!(near(found(&bundle, &augmented(), 1).intra[1], found(&bundle, &augmented(), 40).intra[1]));
}

/// By hand for one sample and two members.
#[test]
fn members_are_compared_by_the_cosine_of_their_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), &[(7, model(1)), (3, model(2))]);
    let view = samples(1);
    let question =
        Question { view: &view, preparation: &Preparation::default(), batch: 1, fusions: &[Fusion::Logits] };
    let own = [model(1), model(2)].map(|params| {
        let f = &features(&params, &view)[0];
        let length = f.iter().map(|v| v * v).sum::<f32>().sqrt();
        let logit = |class: usize| {
            let p = params.get(HEAD).unwrap().values()[5 * class..][..5].iter();
            (p.zip(f).map(|(p, f)| p * f).sum::<f32>() / length).exp()
        };
        (0..3).map(logit).collect::<Vec<f32>>()
    });
    let expected = 1.0 - models::mean_cosine(&own[0], &own[1], 1);
    let found = bundle.inconsistency(&question, &model(0)).unwrap();
    assert!((found.inter.unwrap() - expected).abs() < 1e-5, "{found:?} {expected}");
    // Without augmentation there are no two views.
    assert!(found.intra.is_empty() && found.intra_of_start.is_none());
    assert_eq!(found.metrics().map(|(name, _)| name).collect::<Vec<_>>(), ["inter-inconsistency"]);
}

/// What the last layer is given, regardless of which layers the network calls its head.
#[test]
fn features_are_those_before_the_last_layer() {
    let folder = tempfile::tempdir().unwrap();
    let linear = |name: &str, out| Layer::Linear { name: name.into(), out, bias: true };
    let parted = |body: usize| {
        let layers = [Layer::Flatten, linear("fc", 5), Layer::Relu, linear("out", 3)];
        let (extractor, head) = layers.split_at(body);
        let (extractor, head) = (extractor.to_vec(), head.to_vec());
        Architecture { extractor, head, projection: Vec::new(), ..architecture(5) }
    };
    let of = |body: usize| {
        let network = parted(body);
        let specs = network.parameter_specs().unwrap();
        // Values by their place, not by their names.
        let values = |place: usize, shape: &[usize]| {
            let count = shape.iter().product::<usize>();
            (0..count).map(|n| ((7 * n + 3 * place) % 11) as f32 / 11.0 - 0.4).collect::<Vec<_>>()
        };
        let mut params = ParamSet::new();
        for (place, spec) in specs.iter().enumerate() {
            params.insert(
                spec.name.clone(),
                Array::new(spec.shape.clone(), values(place, &spec.shape)).unwrap(),
            );
        }
        let manifest =
            Manifest { architecture: network, answering: Ensemble::default().answering(), ..manifest() };
        let bundle = written(folder.path(), &manifest, &[(7, params.clone())]);
        let question = Question { view: &samples(20), preparation: &augmented(), batch: 7, fusions: &[] };
        bundle.inconsistency(&question, &params).unwrap()
    };
    assert_eq!(of(3), of(1), "the head is one layer, or all that have parameters");
    assert!(of(3).intra[0] > 1e-3);
}
