//! `results.csv`: one line for each run.

use super::plan::Plan;
use super::results::{Line, Seed, Traffic, measured};

const COLUMNS: &str = "cell,variant,seed,run,complete,rounds,accuracy,best_accuracy,target,rounds_to_target,\
                       bytes_to_target,bytes_up_to_target,bytes,bytes_up,void_rounds,rejected,failed,missing,collapsed,diverged,chosen,steps,loss";

/// One line for each run. The last columns are the measurements of clients, if there are any.
#[must_use]
pub fn csv(plan: &Plan, lines: &[Line]) -> String {
    let measured: Vec<&str> = measured(lines).into_iter().collect();
    let mut text = [&[COLUMNS], &measured[..]].concat().join(",");
    text.push('\n');
    for line in lines {
        for seed in &line.seeds {
            let mut fields = fields(plan, line, seed);
            fields.extend(measured.iter().map(|name| or_empty(seed.metrics.get(*name))));
            text.push_str(&fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(","));
            text.push('\n');
        }
    }
    text
}

fn fields(plan: &Plan, line: &Line, seed: &Seed) -> Vec<String> {
    let until = seed.reached.map(|(_, until)| until);
    let sum = |traffic: Traffic<u64>| traffic.down.saturating_add(traffic.up);
    let troubles = &seed.troubles;
    let counts = [troubles.void, troubles.rejected, troubles.failed, troubles.missing];
    let mut fields = vec![
        plan.cells[line.cell].name.clone(),
        plan.experiment.variants[line.variant].name.clone(),
        seed.seed.to_string(),
        seed.run.clone(),
        seed.complete.to_string(),
        seed.rounds.to_string(),
        or_empty(seed.accuracy),
        or_empty(seed.best),
        or_empty(seed.target),
        or_empty(seed.crossing),
        or_empty(until.map(sum)),
        or_empty(until.map(|until| until.up)),
        sum(seed.traffic).to_string(),
        seed.traffic.up.to_string(),
    ];
    fields.extend(counts.map(|count| count.to_string()));
    fields.extend([troubles.collapsed.to_string(), troubles.diverged.to_string()]);
    fields.push(line.chosen.as_deref().unwrap_or_default().replace(", ", " "));
    fields.extend([or_empty(seed.steps), or_empty(seed.loss)]);
    fields
}

/// A field as RFC 4180 has it: the names and folders of runs that exist are anything.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_stays_one_field() {
        let cases =
            [("plain", "plain"), ("mu=1, b", "\"mu=1, b\""), ("a \"b\"", "\"a \"\"b\"\"\""), ("", "")];
        for (field, expected) in cases {
            assert_eq!(quoted(field), expected);
        }
    }
}
