"""The promises of the memory: what takes each of them away, and the tests that must see it."""

from agent import Mutant

MEMORY = "services/memory/src/"
# Where the function that searches by words is made as it is now.
WORDS = "migrations/0052_memory_filters.sql"

MUTANTS = {
    # The search by words, which runs as the owner, asks for no tenant.
    "memory-tenant": Mutant(
        [
            (
                WORDS,
                "where u.words @@ (whose && asked[n]) and (u.tenant_id = tenant) is true limit 1001",
                "where u.words @@ (whose && asked[n]) limit 1001",
            ),
            (
                WORDS,
                "where u.words @@ (whose && ask) and (u.tenant_id = tenant) is true",
                "where u.words @@ (whose && ask)",
            ),
        ],
        [
            ("memory", "it", "isolation::row_level_security_holds_where_a_query_forgets_the_tenant"),
        ],
    ),
    # Whoever asks reads what is of any user.
    "memory-user": Mutant(
        [
            (
                MEMORY + "store.rs",
                "and ($2 or (agent_id = any ($3) and user_id = any ($4) and",
                "and ($2 or (agent_id = any ($3) and coalesce(user_id = any ($4), true) is not null and",
            ),
        ],
        [
            ("memory", "it", "isolation::another_user_and_another_agent_find_what_is_everybodys_only"),
        ],
    ),
    # A search by words finds what is of any user.
    "memory-user-words": Mutant(
        [
            (
                WORDS,
                "and u.agent_id = any (agents) and u.user_id = any (users) and u.kind = any (kinds)",
                "and u.agent_id = any (agents) and u.kind = any (kinds)",
            ),
            (WORDS, " || '\\x00' || convert_to(owner, 'UTF8')", ""),
        ],
        [
            ("memory", "it", "isolation::another_user_and_another_agent_find_what_is_everybodys_only"),
        ],
    ),
    # A word counts whoever of an agent's users said it.
    "memory-user-count": Mutant(
        [
            (WORDS, "'\\x00' || convert_to(owner, 'UTF8')", "'\\x00'"),
        ],
        [
            ("memory", "it", "embedding::of_a_word_that_counts_which_they_see_who_asks"),
        ],
    ),
    # What filters leave of a large tenant is looked for by the index, which misses it.
    "memory-filtered": Mutant(
        [
            (
                MEMORY + "find.rs",
                "let is_much = view.seen.vectors > self.views.max_scanned_units();",
                "let is_much = view.seen.vectors > i64::MAX - self.views.max_scanned_units();",
            ),
        ],
        [
            ("memory", "it", "embedding::what_filters_leave_of_much_is_found_as_if_all_were_looked_at"),
        ],
    ),
    # A group is told the memory file, if somebody says that it may be.
    "memory-file": Mutant(
        [
            (
                MEMORY + "operations/documents.rs",
                "let group_safe = new.group_safe && !new.path.ends_with(PRIVATE_FILE);",
                "let group_safe = new.group_safe && !PRIVATE_FILE.is_empty();",
            ),
        ],
        [
            ("memory", "it", "isolation::a_group_hears_what_is_safe_there_and_never_the_memory_file"),
        ],
    ),
    # What comes from nowhere is kept.
    "memory-provenance": Mutant(
        [
            (
                MEMORY + "validation.rs",
                "let given = given.ok_or(Error::NoProvenance)?;",
                "let given = given.unwrap_or(pb::Provenance {\n"
                "            kind: pb::SourceKind::User.into(),\n"
                '            name: "somebody".to_owned(),\n'
                "            ..pb::Provenance::default()\n"
                "        });",
            ),
        ],
        [
            ("memory", "lib", "validation::tests::nothing_is_kept_that_comes_from_nowhere"),
            ("memory", "it", "keeping::nothing_is_kept_without_saying_where_it_comes_from"),
        ],
    ),
    # What a request kept is kept again by the same.
    "memory-request": Mutant(
        [
            (
                MEMORY + "operations/items.rs",
                "(!request.is_empty()).then(|| (request, i32::try_from(n).unwrap_or(i32::MAX)));",
                "None::<(&str, i32)>.filter(|_| n < usize::MAX);",
            ),
        ],
        [
            ("memory", "it", "keeping::the_same_request_again_changes_nothing"),
        ],
    ),
    # Erasing a person leaves what they said.
    "memory-erase-said": Mutant(
        [
            (MEMORY + "store/forget.rs", '("units", "user_id = $2"),', '("units", "user_id = $2 and kind <> 5"),'),
        ],
        [
            ("memory", "it", "forgetting::a_user_goes_from_every_table_and_others_stay"),
        ],
    ),
    # A deleted agent leaves its notes.
    "memory-erase-agent": Mutant(
        [
            (
                MEMORY + "store/forget.rs",
                '("documents", "agent_id = $2 and version > 0"),',
                '("documents", "agent_id = $2 and version > 0 and kind = 7"),',
            ),
        ],
        [
            ("memory", "it", "erasing::a_deleted_agent_takes_along_all_that_was_its_own"),
        ],
    ),
    # What is kept while its session is deleted stays.
    "memory-erase-late": Mutant(
        [
            (MEMORY + "eraser.rs", "const MAX_PASSES: i32 = 2;", "const MAX_PASSES: i32 = 1;"),
        ],
        [
            ("memory", "it", "erasing::what_is_kept_late_of_a_deleted_session_goes_too"),
        ],
    ),
    # A session is deleted, and nobody tells its memory.
    "memory-erase-intent": Mutant(
        [
            (
                "crates/session/src/delete.rs",
                "select memory.forget_later('session', $1)",
                "select coalesce($1::text, '')",
            ),
        ],
        [
            ("holdfast-session", "it", "keeping::a_deleted_session_is_gone_with_all_that_was_said"),
        ],
    ),
    # Anybody decides about what was proposed.
    "proposal-who": Mutant(
        [
            (MEMORY + "operations/proposals.rs", "if !who.maintainer {", "if !who.maintainer && by.is_empty() {"),
        ],
        [
            ("memory", "it", "proposals::only_a_maintainer_decides_and_only_about_proposals"),
        ],
    ),
    # What was proposed for another text is made of this one.
    "proposal-stale": Mutant(
        [
            (MEMORY + "operations/proposals.rs", "if !is_same {", "if !is_same && by.is_empty() {"),
        ],
        [
            ("memory", "it", "proposals::a_change_of_what_is_no_longer_there_is_refused_and_stays_open"),
        ],
    ),
    # Two who accept at once both do.
    "proposal-lock": Mutant(
        [
            (MEMORY + "operations/proposals.rs", "        items::lock(&mut tx, id).await?;\n", ""),
        ],
        [
            ("memory", "it", "proposals::two_that_accept_at_once_make_one_version"),
        ],
    ),
    # A page that the library gives up on takes the whole PDF along.
    "pdf-page": Mutant(
        [
            (
                "crates/documents/src/pdf.rs",
                "            (_, true) => pages.push(Page { number, text: None }),",
                "            (_, true) => return Err(Error::BrokenPdf),",
            ),
        ],
        [
            ("memory", "it", "pdf::a_page_that_cannot_be_read_costs_no_other"),
        ],
    ),
}
