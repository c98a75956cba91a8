//! Behaviours that are part of the product.

/// Behaviour that a conversation starts with, unless the agent names another.
pub const DEFAULT_BEHAVIOR: &str = "resolve_router";

/// Name and document of each built-in behaviour.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("adjust", include_str!("../../behaviors/adjust.yaml")),
    ("bench", include_str!("../../behaviors/bench.yaml")),
    ("check", include_str!("../../behaviors/check.yaml")),
    ("do", include_str!("../../behaviors/do.yaml")),
    ("plan", include_str!("../../behaviors/plan.yaml")),
    ("replan", include_str!("../../behaviors/replan.yaml")),
    (DEFAULT_BEHAVIOR, include_str!("../../behaviors/resolve_router.yaml")),
    ("self_improve", include_str!("../../behaviors/self_improve.yaml")),
];
