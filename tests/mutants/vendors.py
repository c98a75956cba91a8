"""The rules of vendors: what makes a request break each of them, and the test that must see it. As in
agent.py. The tests have servers that refuse what the vendors refuse, and no database.
"""

from agent import Mutant

LLM = "crates/llm/src/"
SERVERS = LLM + "servers.rs"
CHAT = LLM + "openai/encode.rs"


def llm(*tests: str) -> list[tuple[str, str, str]]:
    """Tests of requests to vendors."""
    return [("holdfast-llm", "vendors", test) for test in tests]


CALLS = "calls_and_their_reasoning_go_back_as_each_vendor_wants_them"
OTHERS = "a_conversation_of_another_vendor_goes_on"
TOOLS = "schemas_and_numbers_of_tools_are_what_each_vendor_takes"
FORMS = "forms_of_answers_are_asked_for_where_the_vendor_takes_them"
DEMANDS = "a_call_is_demanded_where_the_vendor_lets_one"
NUMBERS = "temperatures_limits_and_seeds_are_sent_as_each_vendor_names_them"
CLOUDS = "clouds_are_asked_with_their_own_credentials"
SWITCHES = "thinking_is_switched_in_the_words_of_each_vendor"

MUTANTS = {
    # Reasoning is not sent back.
    "vendor-reasoning": Mutant(
        [(SERVERS, "    reasoning: ReasoningBack::Content,\n    switch: ThinkingSwitch::Type,", "    switch: ThinkingSwitch::Type,")],
        llm(CALLS),
    ),
    # Ids of calls are sent to Mistral as they are.
    "vendor-call-ids": Mutant(
        [(CHAT, "if let (true, ChatMessage::Assistant { calls, .. }) = (is_mistral, said) {", "if let (true, ChatMessage::Assistant { calls, .. }) = (false, said) {")],
        llm(CALLS),
    ),
    # A user's message follows a result at Mistral.
    "vendor-bridge": Mutant(
        [(CHAT, 'Some(last) if is_mistral && last["role"] == "tool"', 'Some(last) if false && last["role"] == "tool"')],
        llm(OTHERS),
    ),
    # Roles do not take turns.
    "vendor-turns": Mutant(
        [(SERVERS, "ServerFeatures { history: HistoryRules::Turns, ..BASE_FEATURES }", "ServerFeatures { history: HistoryRules::OpenAi, ..BASE_FEATURES }")],
        llm(OTHERS),
    ),
    # No content goes beside calls.
    "vendor-content": Mutant(
        [(CHAT, '            "content": text,\n            "tool_calls"', '            "content": (!text.is_empty()).then_some(text),\n            "tool_calls"')],
        llm(CALLS),
    ),
    # An assistant says nothing.
    "vendor-empty-text": Mutant(
        [(CHAT, "let text = if text.trim().is_empty() { EMPTY_TEXT } else { text };", "let text = text.trim();")],
        llm(OTHERS),
    ),
    # Newer models of OpenAI have their tools in Chat Completions.
    "vendor-responses": Mutant(
        [(SERVERS, "    responses: true,\n", "    responses: false,\n")],
        llm(CALLS),
    ),
    # Schemas of tools are sent as they are.
    "vendor-schemas": Mutant(
        [(LLM + "wire_text.rs", "    if is_fit {\n", "    if is_fit || true {\n")],
        llm(TOOLS),
    ),
    # All tools are sent.
    "vendor-tools": Mutant(
        [(CHAT, "let tools = offered_tools(request, takes).take(most);", "let tools = offered_tools(request, takes).take(most.max(1_000));")],
        llm(TOOLS),
    ),
    # A schema is asked of a vendor that takes none.
    "vendor-forms": Mutant(
        [(SERVERS, "ServerFeatures { forms: AnswerForms::Object, ..KIMI_FEATURES }", "ServerFeatures { forms: AnswerForms::All, ..KIMI_FEATURES }")],
        llm(FORMS),
    ),
    # A form is asked for beside tools.
    "vendor-forms-and-tools": Mutant(
        [(SERVERS, "forms: AnswerForms::WithoutTools,", "forms: AnswerForms::All,")],
        llm(FORMS),
    ),
    # A call is demanded of a model that thinks.
    "vendor-demands": Mutant(
        [(CHAT, "request.forced_call().is_some() && takes.demands == CallDemands::WithoutThinking;", "request.forced_call().is_some() && takes.demands == CallDemands::Never;")],
        llm(DEMANDS),
    ),
    # A call is demanded where none can be.
    "vendor-no-demands": Mutant(
        [(SERVERS, "demands: CallDemands::Never,", "demands: CallDemands::Always,")],
        llm(DEMANDS),
    ),
    # Our temperature goes beside the client's `top_p`.
    "vendor-temperature": Mutant(
        [(LLM + "model.rs", "self.card().temperature && !has_top_p", "self.card().temperature && (!has_top_p || has_top_p)")],
        llm(NUMBERS),
    ),
    # The limit has the old word at OpenAI.
    "vendor-limit": Mutant(
        [(SERVERS, "    completion_limit: true,\n", "    completion_limit: false,\n")],
        llm(NUMBERS),
    ),
    # Thinking is enabled at MiniMax by the word of others.
    "vendor-switch": Mutant(
        [(SERVERS, "ServerFeatures { switch: ThinkingSwitch::Adaptive, ..BASE_FEATURES }", "ServerFeatures { switch: ThinkingSwitch::Type, ..BASE_FEATURES }")],
        llm(SWITCHES),
    ),
    # A budget for thinking is asked for beside calls without thinking.
    "vendor-budget": Mutant(
        [(LLM + "anthropic/encode.rs", "        !calls.is_empty() && thoughts.is_none()\n", "        calls.is_empty() && thoughts.is_none()\n")],
        llm(OTHERS),
    ),
    # Ids of calls are used twice at Anthropic.
    "vendor-unique-ids": Mutant(
        [(LLM + "wire_text.rs", "while !self.taken.insert(id.clone()) {", "while !self.taken.insert(id.clone()) && n > 9 {")],
        llm(CALLS),
    ),
    # A call of another model goes to Gemini without the word for it.
    "vendor-signatures": Mutant(
        [(LLM + "gemini/encode.rs", "first[\"thoughtSignature\"] = SIGNATURE_PLACEHOLDER.into();", "first[\"thoughtSignature\"] = first[\"thoughtSignature\"].clone();")],
        llm(OTHERS),
    ),
    # Replies in a row are two turns at Gemini.
    "vendor-model-turns": Mutant(
        [(LLM + "gemini/encode.rs", 'contents.last_mut().filter(|last| last["role"] == "model");', 'contents.last_mut().filter(|last| last["role"] == "nobody");')],
        llm(OTHERS),
    ),
    # Calls go to Vertex AI with ids.
    "vendor-vertex-ids": Mutant(
        [(LLM + "gemini/encode.rs", "    if asked.given.contains(call.id.as_str()) {", "    if !call.id.is_empty() {")],
        llm(CALLS),
    ),
    # Claude on Vertex AI is asked with the version of Anthropic's own API.
    "vendor-vertex-version": Mutant(
        [(LLM + "anthropic.rs", "VERTEX_API_VERSION.into()", '"2023-06-01".into()')],
        llm(CALLS),
    ),
    # The model's name is in the body, too.
    "vendor-vertex-model": Mutant(
        [(LLM + "anthropic.rs", '            fields.remove("model");\n', "")],
        llm(CALLS),
    ),
    # Another scope is asked for.
    "vendor-google-scope": Mutant(
        [(LLM + "google.rs", '"https://www.googleapis.com/auth/cloud-platform"', '"https://www.googleapis.com/auth/userinfo.email"')],
        [("holdfast-llm", "lib", "vertex::tests::a_token_of_a_service_account_is_asked_for_as_google_demands")],
    ),
    # A key of Azure goes where tokens do.
    "vendor-azure-key": Mutant(
        [(LLM + "azure.rs", 'http::key(HeaderName::from_static("api-key"), "", key)?', 'http::key(reqwest::header::AUTHORIZATION, "Bearer ", key)?')],
        llm(CLOUDS),
    ),
    # Newer models of Azure have their tools in Chat Completions.
    "vendor-azure-responses": Mutant(
        [(LLM + "azure.rs", "Some(server) if has_tools && servers", "Some(server) if has_tools && false && servers")],
        llm(CALLS),
    ),
    # Descriptions of tools are sent whole.
    "vendor-azure-descriptions": Mutant(
        [(SERVERS, "max_description: Some(1_024)", "max_description: Some(10_000)")],
        llm(TOOLS),
    ),
    # A dated version gets newer fields.
    "vendor-azure-fields": Mutant(
        [(LLM + "azure.rs", "cache_key: version.is_none(), ..AZURE", "cache_key: true, ..AZURE")],
        llm("a_deployment_of_azure_is_asked_by_a_dated_version_too"),
    ),
    # The filter of Azure is an error of the request.
    "vendor-azure-filter": Mutant(
        [
            (LLM + "azure.rs", "if is_filtered(body) {", "if is_filtered(body) && false {"),
            (LLM + "openai/refusal.rs", 'if is(&["content_filter"]) {', 'if is(&["content_filtered"]) {'),
        ],
        llm("a_prompt_that_the_filter_of_azure_refuses_is_filtered"),
    ),
    # The body is not signed.
    "vendor-bedrock-signature": Mutant(
        [(LLM + "bedrock/sigv4.rs", "        sha256_hex(body)\n", "        sha256_hex(&body[..0])\n")],
        llm(CALLS),
    ),
    # The path is signed as it is.
    "vendor-bedrock-path": Mutant(
        [(LLM + "bedrock/sigv4.rs", 'encode(url.path(), "/"),', 'encode(url.path(), "/%"),')],
        llm(CALLS),
    ),
    # Calls are sent to Bedrock without tools.
    "vendor-bedrock-tools": Mutant(
        [(LLM + "bedrock/encode.rs", "match has_calls && request.chat.tools.is_empty() {", "match has_calls && false {")],
        llm(CALLS),
    ),
    # Schemas of tools are sent to Bedrock as they are.
    "vendor-bedrock-schemas": Mutant(
        [(LLM + "bedrock/encode.rs", '"json": tool_schema(&tool.input) }', '"json": tool.input }')],
        llm(TOOLS),
    ),
    # A tool of Bedrock has an empty description.
    "vendor-bedrock-descriptions": Mutant(
        [(LLM + "bedrock/encode.rs", "if !tool.description.trim().is_empty() {", "if !tool.description.is_empty() || spec.is_object() {")],
        llm(TOOLS),
    ),
    # A budget for thinking is asked of Bedrock beside calls without reasoning.
    "vendor-bedrock-budget": Mutant(
        [(LLM + "bedrock/encode.rs", "        !calls.is_empty() && carried.is_none()\n", "        calls.is_empty() && carried.is_none()\n")],
        llm(OTHERS),
    ),
    # A turn of Llama has results and words.
    "vendor-bedrock-turns": Mutant(
        [(LLM + "bedrock/encode.rs", '["anthropic.", "amazon.nova"]', '["anthropic.", "llama"]')],
        llm(CALLS),
    ),
    # A call is demanded of Llama.
    "vendor-bedrock-demands": Mutant(
        [(LLM + "bedrock/encode.rs", 'MODELS_WITHOUT_DEMANDS: [&str; 1] = ["llama"]', 'MODELS_WITHOUT_DEMANDS: [&str; 1] = ["nobody"]')],
        llm(DEMANDS),
    ),
    # All models of Bedrock have a cache.
    "vendor-bedrock-cache": Mutant(
        [(LLM + "bedrock/encode.rs", "CACHING_MODELS.iter().any(|part| request.model.id().contains(part));", "!CACHING_MODELS.is_empty();")],
        llm(CALLS),
    ),
    # A frame's checksum is that of its beginning.
    "vendor-bedrock-frames": Mutant(
        [(LLM + "bedrock/frames.rs", "if number(frame, end) != crc32fast::hash(&frame[..end]) {", "if number(frame, end) != crc32fast::hash(&frame[..PRELUDE_BYTES]) {")],
        llm(CALLS),
    ),
    # LM Studio is asked for a call by the tool's name.
    "vendor-lm-studio-demands": Mutant(
        [(SERVERS, "demands: CallDemands::ByWord, ", "")],
        llm(DEMANDS),
    ),
    # LM Studio is asked for any object.
    "vendor-lm-studio-forms": Mutant(
        [(SERVERS, "forms: AnswerForms::Schema, ", "")],
        llm(FORMS),
    ),
    # An error within a stream is never about the length.
    "vendor-lm-studio-overflow": Mutant(
        [(LLM + "openai/refusal.rs", "    if names_overflow(error) {\n", "    if names_overflow(error) && false {\n")],
        llm("words_of_lm_studio_for_a_long_conversation_are_understood"),
    ),
}
