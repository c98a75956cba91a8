//! One message is one trace, from the door it came in by to the answer's way out.

use std::{
    future::{Ready, ready},
    sync::{Arc, Mutex},
};

use holdfast_kit::telemetry;
use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};

use crate::world::{World, place};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Spans {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        self.0.lock().unwrap().extend(batch);
        let done: Ready<OTelSdkResult> = ready(Ok(()));
        done
    }
}

#[tokio::test]
async fn a_turn_is_part_of_its_messages_trace_and_tells_nothing_that_was_said() -> anyhow::Result<()>
{
    let spans = Spans::default();
    let config = telemetry::Config::default();
    let _guard = telemetry::init_with_exporter("runner", &config, spans.clone())?;
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::call("a", "agents_list", "{}"), Reply::text("whispered")]);

    let message = NewMessage {
        trace: Some(format!("00-{TRACE}-b7ad6b7169203331-01")),
        target: Some(place("7")),
        ..world.message("s", "hush hush")
    };
    let sent = world.send(message).await?;
    world.text(&sent).await?;
    let mine = || -> Vec<SpanData> {
        let all = spans.0.lock().unwrap();
        all.iter()
            .filter(|span| span.span_context.trace_id().to_string() == TRACE)
            .cloned()
            .collect()
    };
    world
        .until("the run's span ends", async || mine().iter().any(|span| span.name == "run"))
        .await?;

    let names: Vec<String> = mine().iter().map(|span| span.name.to_string()).collect();
    for (name, count) in [("run", 1), ("step", 3), ("chat", 2), ("tool", 1)] {
        assert_eq!(names.iter().filter(|have| *have == name).count(), count, "{names:?}");
    }
    let told = format!("{:?}", mine());
    assert!(!told.contains("hush") && !told.contains("whispered"), "{told}");
    let traces = world.texts("select trace from session.deliveries").await?;
    assert!(traces[0].contains(TRACE), "{traces:?}");
    Ok(())
}
