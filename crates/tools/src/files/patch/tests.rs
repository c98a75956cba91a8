//! Tests of `apply_patch`.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    Registry,
    files::fake::{Memory, ask, files, refused},
};

fn input(patch: &str) -> String {
    json!({ "patch": patch }).to_string()
}

fn world() -> (Call, Arc<Memory>, Registry) {
    let (call, files, tools) = files();
    files.put(&call, "a.rs", "one\ntwo\nthree\nfour\nfive\nsix\n");
    files.put(&call, "b.rs", "x\ny\n");
    (call, files, tools)
}

const UNIFIED: &str = "\
diff --git a/a.rs b/a.rs
index 1..2 100644
--- a/a.rs
+++ b/a.rs
@@ -1,3 +1,3 @@ context
 one
-two
+TWO
 three
@@ -5,2 +5,3 @@
 five
+five and a half
 six
diff --git a/b.rs b/b.rs
deleted file mode 100644
--- a/b.rs
+++ /dev/null
@@ -1,2 +0,0 @@
-x
-y
--- /dev/null
+++ b/c/new.rs
@@ -0,0 +1 @@
+fresh
\\ No newline at end of file
";

#[tokio::test]
async fn a_unified_diff_changes_makes_and_deletes_in_one_revision() {
    let (call, files, tools) = world();

    ask(&tools, &call, "apply_patch", &input(UNIFIED)).await;

    let changed = "one\nTWO\nthree\nfour\nfive\nfive and a half\nsix\n";
    assert_eq!(files.get(&call, "a.rs").unwrap(), changed);
    assert_eq!(files.get(&call, "b.rs"), None);
    assert_eq!(files.get(&call, "c/new.rs").unwrap(), "fresh");
    assert_eq!(files.changes(), (1, Some("patch".into())));
}

#[tokio::test]
async fn a_patched_file_keeps_its_encoding_also_under_another_name() {
    let (call, files, tools) = files();
    let encode = |text: &str| encoding_rs::GBK.encode(text).0.into_owned();
    files.put(&call, "a.csv", encode("姓名,电话\n张三,123\n"));
    let patch = "*** Begin Patch\n*** Update File: a.csv\n*** Move to: b.csv\n@@\n-张三,123\n\
                 +李四,456\n*** End Patch";

    ask(&tools, &call, "apply_patch", &input(patch)).await;

    assert_eq!(files.bytes(&call, "b.csv").unwrap(), encode("姓名,电话\n李四,456\n"));
}

#[tokio::test]
async fn the_form_that_models_were_taught_does_the_same() {
    let (call, files, tools) = world();
    let patch = "\
*** Begin Patch
*** Update File: a.rs
*** Move to: d/a.rs
@@ four
-five
+FIVE
 six
*** End of File
*** Add File: c/new.rs
+fresh
+
*** Delete File: b.rs
*** End Patch";

    ask(&tools, &call, "apply-patch", &json!({ "input": patch }).to_string()).await;

    assert_eq!(files.get(&call, "a.rs"), None);
    assert_eq!(files.get(&call, "d/a.rs").unwrap(), "one\ntwo\nthree\nfour\nFIVE\nsix\n");
    assert_eq!(files.get(&call, "c/new.rs").unwrap(), "fresh\n\n");
    assert_eq!(files.get(&call, "b.rs"), None);
}

#[tokio::test]
async fn a_call_made_again_changes_nothing_twice() {
    let (call, files, tools) = world();

    let first = ask(&tools, &call, "apply_patch", &input(UNIFIED)).await;
    let again = ask(&tools, &call, "apply_patch", &input(UNIFIED)).await;

    assert_eq!(first, again);
    assert_eq!(files.changes().0, 1);
}

#[tokio::test]
async fn one_hunk_that_does_not_fit_leaves_every_file_as_it_was() {
    let (call, files, tools) = world();
    let patch = "--- b.rs\n+++ b.rs\n@@ -1 +1 @@\n-x\n+z\n\
                 --- a.rs\n+++ a.rs\n@@ -1 +1 @@\n-one\n+1\n@@ -3 +3 @@\n-thre\n+3\n";

    let told = refused(&tools, &call, "apply_patch", &input(patch)).await;

    assert_eq!(
        told,
        "hunk 2 of 2 does not fit `a.rs`: its lines are nowhere after line 1; nothing was changed\
         \nline 3 is: `three`"
    );
    assert_eq!(files.changes().0, 0);
    assert_eq!(files.get(&call, "b.rs").unwrap(), "x\ny\n");
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_a_conflict_and_no_other_is_changed() {
    let (call, files, tools) = world();
    files.meanwhile("b.rs", "theirs");

    let told = refused(&tools, &call, "apply_patch", &input(UNIFIED)).await;

    assert!(told.starts_with("`b.rs` was changed meanwhile"), "{told}");
    assert!(files.get(&call, "a.rs").unwrap().contains("two"));
    assert_eq!(files.get(&call, "c/new.rs"), None);
}

#[tokio::test]
async fn what_is_no_patch_is_refused_with_the_reason() {
    let (call, files, tools) = world();
    for (patch, why) in [
        ("", "the patch has no hunk: write a unified diff"),
        ("please change it", "the patch has no hunk"),
        ("--- a.rs\n+++ a.rs\n", "the patch has no hunk for `a.rs`"),
        ("@@ -1 +1 @@\n-one\n+1\n", "line 1 of the patch begins a hunk before"),
        ("--- a.rs\n+++ a.rs\n@@ -1,2 +1,2 @@\n-one\n+1\ntwo\n", "line 6 of the patch, `two`"),
        ("--- a.rs\n+++ a.rs\n@@ -1 +1 @@\n", "the hunk in line 3 of the patch is empty"),
        ("--- z\n+++ z\n@@ -1 +1 @@\n-a\n+b\n", "there is no file `z`"),
        ("--- /dev/null\n+++ a.rs\n@@ -0,0 +1 @@\n+a\n", "there is a file `a.rs` already"),
        ("--- a.rs\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", "the patch deletes `a.rs`, and not all"),
        ("--- ../a\n+++ ../a\n@@ -1 +1 @@\n-a\n+b\n", "`../a` is no path here"),
        ("--- a.rs\n+++ a.rs\n@@ -1 +1 @@\n-one\n+one\n", "the patch changes nothing"),
        ("*** Begin Patch\n*** Update File: a.rs\n-one\n+1\n", "the patch does not end with"),
        ("*** Begin Patch\n*** End Patch\n", "the patch has no hunk"),
        ("*** Begin Patch\n*** Add File: n\nx\n*** End Patch", "line 3 of the patch, `x`"),
        ("*** Begin Patch\n*** Update File: a.rs\n@@\n*** End Patch", "a hunk for `a.rs` is empty"),
        ("Binary files a and b differ\n", "the patch changes a file that is not text"),
    ] {
        let told = refused(&tools, &call, "apply_patch", &input(patch)).await;
        assert!(told.starts_with(why), "{patch:?}: {told}");
    }
    assert_eq!(files.changes().0, 0);
}

fn applied(content: &str, patch: &str) -> Result<String, String> {
    let patches = parse(patch)?;
    let [patch] = patches.as_slice() else { return Err(format!("{patches:?}")) };
    apply::apply_hunks("f", content, &patch.hunks)
}

#[test]
fn a_wrong_line_number_is_forgiven_where_there_is_one_place_only() {
    let patch = "--- f\n+++ f\n@@ -40,9 +40,9 @@\n-b\n+B\n";

    assert_eq!(applied("a\nb\nc\n", patch).unwrap(), "a\nB\nc\n");
    let told = applied("b\nb\n", patch).unwrap_err();
    assert!(told.contains("its lines are in 2 places"), "{told}");
    let right = "--- f\n+++ f\n@@ -2 +2 @@\n-b\n+B\n";
    assert_eq!(applied("b\nb\n", right).unwrap(), "b\nB\n");
}

#[test]
fn spaces_are_context_too() {
    let told = applied("a\n\tb\n", "--- f\n+++ f\n@@ -2 +2 @@\n-    b\n+c\n").unwrap_err();

    assert!(told.contains("its lines are nowhere in the file"), "{told}");
    assert!(told.contains("line 2 is: `\tb`"), "{told}");
}

#[test]
fn line_ends_are_kept_as_they_are() {
    let patch = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
    assert_eq!(applied("a\r\nb\r\n", patch).unwrap(), "a\r\nc\r\n");
    assert_eq!(applied("a\nb", patch).unwrap(), "a\nc");

    let gains = "--- f\n+++ f\n@@ -1 +1 @@\n-b\n\\ No newline at end of file\n+b\n";
    assert_eq!(applied("b", gains).unwrap(), "b\n");
    let loses = "--- f\n+++ f\n@@ -1 +1 @@\n-b\n+b\n\\ No newline at end of file\n";
    assert_eq!(applied("b\n", loses).unwrap(), "b");
}

#[test]
fn a_fence_and_empty_lines_around_are_no_part_of_a_patch() {
    let patch = "```diff\n--- f\n+++ f\n@@ -1,2 +1,2 @@\n-a\n+b\n\n c\n\n```\n";

    assert_eq!(applied("a\n\nc\n", patch).unwrap(), "b\n\nc\n");
}

#[test]
fn lines_that_look_like_headers_are_lines() {
    let patch = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n--- a\n+++ b\n c\n";

    assert_eq!(applied("-- a\nc\n", patch).unwrap(), "++ b\nc\n");
}

#[test]
fn what_is_only_added_goes_where_it_is_told() {
    let after = "--- f\n+++ f\n@@ -1,0 +2 @@\n+x\n";
    assert_eq!(applied("a\nb\n", after).unwrap(), "a\nx\nb\n");
    let anchored = "*** Begin Patch\n*** Update File: f\n@@ a\n+x\n*** End Patch";
    assert_eq!(applied("a\nb\n", anchored).unwrap(), "a\nx\nb\n");
    let loose = "*** Begin Patch\n*** Update File: f\n+x\n*** End Patch";
    assert_eq!(applied("a\nb\n", loose).unwrap(), "a\nb\nx\n");
}

/// Unified diff that deletes all old lines and adds all new ones.
fn whole(old: &[String], new: &[String]) -> String {
    let lines = |sign: char, lines: &[String]| -> String {
        lines.iter().map(|line| format!("{sign}{line}\n")).collect()
    };
    let (was, is) = (old.len(), new.len());
    format!("--- a/f\n+++ b/f\n@@ -1,{was} +1,{is} @@\n{}{}", lines('-', old), lines('+', new))
}

proptest! {
    #[test]
    fn any_text_becomes_any_other(
        old in proptest::collection::vec("[ a+@*\\\\-]{0,5}", 1..6),
        new in proptest::collection::vec("[ a+@*\\\\-]{0,5}", 1..6),
    ) {
        let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();

        prop_assert_eq!(applied(&text(&old), &whole(&old, &new)), Ok(text(&new)));
    }

    #[test]
    fn no_patch_breaks_the_reader(patch in "([-+ @*\\\\a]{0,6}\n){0,12}", content in "([ a]{0,3}\n){0,5}") {
        if let Ok(patches) = parse(&patch) {
            for patch in patches {
                let _ = apply::apply_hunks("f", &content, &patch.hunks);
            }
        }
    }

    #[test]
    fn the_policy_sees_every_file_that_a_patch_changes(patch in PATCH_LINES, begins in any::<bool>()) {
        let patch = match begins {
            true => format!("*** Begin Patch\n{patch}*** End Patch\n"),
            false => patch,
        };
        let seen = seen_by_policy(&patch);
        for named in parse(&patch).unwrap_or_default() {
            for path in [named.from, named.to].into_iter().flatten() {
                // Other paths are refused before anything is changed.
                if let Ok(path) = file_path(&path) {
                    prop_assert!(seen.contains(&path), "{path} of {patch:?}: {seen:?}");
                }
            }
        }
    }
}

/// Lines that either format may read as the name of a file, and some that follow them.
const PATCH_LINES: &str = "(\\*\\*\\* (Add|Update|Delete) File:[ \t]?[ab\"]?/?[fg\"]{1,2}\n[+ -]?x?\n|\
    \\*\\*\\* Move to:[ \t]?[fg]\n|--- [ab\"]?/?[fg\"]\t?x?\n\\+\\+\\+ [ab\"]?/?[fg\"]\n|\
    --- /dev/null\n\\+\\+\\+ [ab]/[fg]\n|@@ -1 \\+1 @@\n[+ -]x\n|rename from f\n){0,5}";

fn seen_by_policy(patch: &str) -> Vec<String> {
    holdfast_agent::policy::written_paths("apply_patch", &json!({ "patch": patch })).unwrap()
}

#[test]
fn a_name_that_ends_in_a_quote_is_seen_by_the_policy_too() {
    assert!(seen_by_policy("--- a/f\n+++ b/note\"\n").contains(&"note\"".to_owned()));
}

#[test]
fn a_header_without_a_space_names_its_file_to_the_policy_too() {
    for (header, change) in
        [("Add File:", "+x\n"), ("Update File:", "@@\n-x\n+y\n"), ("Delete File:", "")]
    {
        let patch = format!("*** Begin Patch\n*** {header}HEARTBEAT.md\n{change}*** End Patch");

        assert_eq!(parse(&patch).unwrap().len(), 1, "{patch}");
        assert_eq!(seen_by_policy(&patch), ["HEARTBEAT.md"], "{patch}");
    }
}
