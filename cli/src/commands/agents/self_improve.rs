//! The option `--self-improve` of an agent.

use holdfast_proto::gateway::v1::{self as pb, Agent};
use holdfast_types::SelfImproveSettings;
use serde_json::{Value, json};

use crate::error::Error;

pub(super) fn apply(agent: &mut Agent, given: Option<&str>) -> Result<(), Error> {
    let settings = match given {
        None => return Ok(()),
        Some("off") => {
            agent.self_improve = None;
            return Ok(());
        }
        Some("on") => SelfImproveSettings::default(),
        Some(json) => serde_json::from_str(json).map_err(|error| {
            Error::Usage(format!(
                "`--self-improve` is `on`, `off` or JSON, as in docs/self.md: {error}"
            ))
        })?,
    };
    let SelfImproveSettings { idle_s, max_per_day, max_tokens } = settings;
    agent.self_improve = Some(pb::SelfImproveSettings { idle_s, max_per_day, max_tokens });
    Ok(())
}

pub(super) fn view(agent: &Agent) -> Value {
    let Some(settings) = &agent.self_improve else { return Value::Null };
    json!({
        "idle_s": settings.idle_s,
        "max_per_day": settings.max_per_day,
        "max_tokens": settings.max_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upkeep_is_turned_on_changed_and_off() {
        let mut agent = Agent::default();
        apply(&mut agent, None).unwrap();
        assert_eq!(view(&agent), Value::Null);

        apply(&mut agent, Some("on")).unwrap();
        assert_eq!(view(&agent)["idle_s"], 3_600);
        apply(&mut agent, Some(r#"{"idle_s": 60}"#)).unwrap();
        assert_eq!(
            (&view(&agent)["idle_s"], &view(&agent)["max_per_day"]),
            (&json!(60), &json!(1))
        );
        assert!(apply(&mut agent, Some(r#"{"idle": 60}"#)).is_err());

        apply(&mut agent, Some("off")).unwrap();
        assert!(agent.self_improve.is_none());
    }
}
