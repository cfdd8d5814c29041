//! Whether a device goes with a run: checked when the device is welcomed, and its samples again before each task.

use shared::spec::{LabelsAt, RunSpec};

use super::TaskError;

/// Whether samples of this shape, with classes of these names, are what the run asks for. The server has checked the shape and the
/// number of classes before it admitted the device; only the device can compare the names, and a server is not trusted.
///
/// # Errors
/// [`TaskError::ClassNames`] or [`TaskError::Shape`].
pub(crate) fn fits(spec: &RunSpec, shape: &[usize], class_names: &[String]) -> Result<(), TaskError> {
    // With the labels at the server, the device's have no meaning.
    let labelled = spec.data.labels == LabelsAt::Device;
    let run = &spec.data.class_names;
    if labelled && !run.is_empty() && !class_names.is_empty() && run != class_names {
        return Err(TaskError::ClassNames { device: class_names.join(", "), run: run.join(", ") });
    }
    if spec.data.shape != shape {
        return Err(TaskError::Shape { device: shape.to_vec(), run: spec.data.shape.clone() });
    }
    Ok(())
}

/// Whether samples of these columns, if they are of a table, have the order that the run names: those that were read before the run said
/// anything have that of their header.
///
/// # Errors
/// [`TaskError::Columns`].
pub(super) fn in_order(spec: &RunSpec, columns: &[String]) -> Result<(), TaskError> {
    let run = &spec.data.features;
    if run.is_empty() || columns.is_empty() || run == columns {
        return Ok(());
    }
    Err(TaskError::Columns { device: columns.join(", "), run: run.join(", ") })
}

/// Whether the run hides each update among those of at least this number of devices, if the device's owner asks for that.
///
/// # Errors
/// [`TaskError::NotHidden`].
pub(crate) fn hides(spec: &RunSpec, least: Option<u32>) -> Result<(), TaskError> {
    let Some(asked) = least else { return Ok(()) };
    let among = spec.secure.enabled.then_some(spec.secure.min_devices);
    if among.is_none_or(|among| among < asked) {
        return Err(TaskError::NotHidden { among, asked });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_order_of_classes_counts_where_labels_do() {
        let mut spec = RunSpec::example("fedavg");
        spec.data.class_names = names(&["cat", "dog"]);
        let check = |spec: &RunSpec, classes: &[&str]| fits(spec, &[1, 2, 2], &names(classes));
        assert!(check(&spec, &["cat", "dog"]).is_ok());
        assert!(check(&spec, &[]).is_ok(), "the device's classes have no names");
        let error = check(&spec, &["dog", "cat"]).expect_err("another order").to_string();
        assert!(error.contains("dog, cat") && error.contains("cat, dog: give --classes"), "{error}");
        assert!(matches!(fits(&spec, &[4], &[]), Err(TaskError::Shape { .. })));
        spec.data.labels = LabelsAt::Server;
        assert!(check(&spec, &["dog", "cat"]).is_ok());
    }

    #[test]
    fn columns_that_the_run_names_have_its_order() {
        let mut spec = RunSpec::example("fedavg");
        assert!(in_order(&spec, &names(&["b", "a"])).is_ok(), "the run names none");
        spec.data.features = names(&["a", "b"]);
        assert!(in_order(&spec, &names(&["a", "b"])).is_ok() && in_order(&spec, &[]).is_ok());
        let error = in_order(&spec, &names(&["b", "a"])).expect_err("another order").to_string();
        assert!(error.contains("b, a") && error.contains("leave --classes"), "{error}");
    }

    #[test]
    fn an_owner_who_asks_for_hidden_updates_joins_no_run_that_hides_them_less() {
        let mut spec = RunSpec::example("fedavg");
        assert!(hides(&spec, None).is_ok());
        let plain = hides(&spec, Some(1)).expect_err("every update is seen").to_string();
        assert!(plain.contains("the server sees every update") && plain.contains("--secure-only"), "{plain}");
        (spec.secure.enabled, spec.secure.min_devices) = (true, 20);
        assert!([None, Some(1), Some(20)].into_iter().all(|asked| hides(&spec, asked).is_ok()));
        let few = hides(&spec, Some(21)).expect_err("fewer").to_string();
        assert!(few.contains("at least 20") && few.contains("21"), "{few}");
    }
}
