//! holdfast-llm
