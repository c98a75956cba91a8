//! Canvas tool: storage of its surfaces, and which sessions have one.

use holdfast_session::NewSurface;
use holdfast_tools::{AllowedTools, Call, CanvasSurface, Canvases, SurfaceFormat};
use holdfast_types::{Fault as _, Kind, SessionKind, Target};

use crate::tools::{mesh::SessionTools, tool_context::ToolContext};

const CANVAS_TOOL: &str = "canvas";

impl Canvases for SessionTools {
    async fn surfaces(&self, call: &Call) -> anyhow::Result<Vec<CanvasSurface>> {
        let there = self.sessions.canvas().surfaces(call.tenant, call.session).await?;
        there.into_iter().map(|one| to_shown(one.properties)).collect()
    }

    async fn change(
        &self,
        call: &Call,
        put: Vec<CanvasSurface>,
        gone: Vec<String>,
    ) -> anyhow::Result<Result<(), String>> {
        let mut names: Vec<String> = put.iter().map(|one| one.name.clone()).collect();
        let put: Vec<NewSurface> = put.into_iter().map(to_new_surface).collect();
        match self.sessions.canvas().change(call.tenant, call.session, &put, &gone).await {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Conflict => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        }
        names.extend(gone);
        ToolContext::of(call)?.redraw(names);
        Ok(Ok(()))
    }
}

/// Removes the canvas from sessions in which nobody can see it: it is offered only in conversations
/// of API clients, never on a channel (spec TOL-026).
pub(crate) fn without_unseen_canvas(
    allowed: AllowedTools,
    kind: SessionKind,
    target: Option<&Target>,
) -> AllowedTools {
    if has_canvas(kind, target) {
        return allowed;
    }
    AllowedTools::matching(move |tool| tool != CANVAS_TOOL && allowed.allows(tool))
}

const fn has_canvas(kind: SessionKind, target: Option<&Target>) -> bool {
    match kind {
        SessionKind::Main
        | SessionKind::Api
        | SessionKind::Dm
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Work
        | SessionKind::Global => target.is_none(),
        // Nobody watches these sessions.
        SessionKind::Subagent | SessionKind::Cron | SessionKind::Heartbeat => false,
    }
}

fn to_new_surface(one: CanvasSurface) -> NewSurface {
    let CanvasSurface { name, title, kind, content, shown } = one;
    NewSurface { name, title, kind: kind.as_str().to_owned(), content, shown }
}

fn to_shown(one: NewSurface) -> anyhow::Result<CanvasSurface> {
    let NewSurface { name, title, kind, content, shown } = one;
    let kind = [SurfaceFormat::A2ui, SurfaceFormat::Markdown, SurfaceFormat::Html]
        .into_iter()
        .find(|known| known.as_str() == kind)
        .ok_or_else(|| anyhow::anyhow!("a surface is stored that this version cannot read"))?;
    Ok(CanvasSurface { name, title, kind, content, shown })
}
