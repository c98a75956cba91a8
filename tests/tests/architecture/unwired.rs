//! Public code that no product code mentions: nothing but a test calls it, or nothing at all.
//!
//! Names are compared, not types: a name that two items share counts as used if either is. What is
//! found is therefore really unused, and some unused code with a common name is not found.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    ImplItem, Item, Visibility,
    visit::{self, Visit},
};

use super::{exceptions, syntax};

/// The names that a crate's production code mentions, except in definitions, imports and the heads
/// of `impl` blocks.
#[derive(Default)]
struct Mentions(BTreeMap<String, usize>);

impl Mentions {
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(name) => self.name(&name),
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn name(&mut self, name: &proc_macro2::Ident) {
        *self.0.entry(name.to_string()).or_default() += 1;
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !syntax::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if syntax::is_test(&block.attrs) {
            return;
        }
        if let Some((_, path, _)) = &block.trait_ {
            self.visit_path(path);
        }
        self.visit_generics(&block.generics);
        block.items.iter().for_each(|item| self.visit_impl_item(item));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !syntax::is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    /// Paths in attributes, such as `#[serde(default = "name")]`, are literals with a name in them.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            for token in list.tokens.clone() {
                if let TokenTree::Literal(literal) = &token {
                    let text = literal.to_string();
                    for name in text.trim_matches('"').split("::") {
                        *self.0.entry(name.to_owned()).or_default() += 1;
                    }
                }
            }
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_ident(&mut self, name: &'ast proc_macro2::Ident) {
        self.name(name);
    }
}

fn is_public(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// The public functions, types and constants that these items define.
fn defined(items: &[Item], names: &mut Vec<String>) {
    for item in items {
        if syntax::is_test(syntax::attributes(item)) {
            continue;
        }
        match item {
            Item::Fn(item) if is_public(&item.vis) => names.push(item.sig.ident.to_string()),
            Item::Struct(item) if is_public(&item.vis) => names.push(item.ident.to_string()),
            Item::Enum(item) if is_public(&item.vis) => names.push(item.ident.to_string()),
            Item::Const(item) if is_public(&item.vis) => names.push(item.ident.to_string()),
            Item::Type(item) if is_public(&item.vis) => names.push(item.ident.to_string()),
            Item::Trait(item) if is_public(&item.vis) => names.push(item.ident.to_string()),
            Item::Mod(item) => {
                if let Some((_, items)) = &item.content {
                    defined(items, names);
                }
            }
            Item::Impl(block) if block.trait_.is_none() => {
                for item in &block.items {
                    match item {
                        ImplItem::Fn(item)
                            if is_public(&item.vis) && !syntax::is_test(&item.attrs) =>
                        {
                            names.push(item.sig.ident.to_string());
                        }
                        ImplItem::Const(item) if is_public(&item.vis) => {
                            names.push(item.ident.to_string());
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// The public names that files define, each with its file, and how often each name is mentioned.
fn unwired<'a>(files: impl Iterator<Item = (&'a str, &'a [Item])>) -> BTreeSet<String> {
    let mut mentions = Mentions::default();
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, items) in files {
        items.iter().for_each(|item| mentions.visit_item(item));
        let mut names = Vec::new();
        defined(items, &mut names);
        for name in names {
            definitions.entry(name).or_default().push(path.to_owned());
        }
    }
    // Each definition mentions its own name once.
    let is_unused = |(name, files): &(&String, &Vec<String>)| {
        mentions.0.get(*name).copied().unwrap_or_default() <= files.len()
    };
    let unused = definitions.iter().filter(is_unused);
    unused
        .flat_map(|(name, files)| files.iter().map(move |file| format!("{file}: {name}")))
        .collect()
}

#[test]
fn public_code_is_called_by_the_product() {
    let files = syntax::production();
    let paths: Vec<String> =
        files.iter().map(|parsed| parsed.source.path.display().to_string()).collect();
    let found =
        unwired(paths.iter().map(String::as_str).zip(files.iter().map(|file| &*file.items)));

    let allowed: BTreeSet<String> =
        exceptions::FOR_TESTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let new: Vec<_> = found.difference(&allowed).collect();
    let old: Vec<_> = allowed.difference(&found).collect();
    assert!(
        new.is_empty(),
        "only tests call these, or nothing does: call each in the product, delete it, or give a \
         reason in tests/tests/architecture/exceptions.rs: {new:#?}"
    );
    assert!(old.is_empty(), "no longer needed in tests/tests/architecture/exceptions.rs: {old:#?}");
}

#[test]
fn code_that_only_a_test_calls_is_found() {
    let parse = |text: &str| syn::parse_file(text).unwrap().items;
    let library = parse(
        "pub struct Used; impl Used { pub fn called(&self) {} pub fn tested(&self) {} }
         pub const LIMIT: u32 = 1; pub fn idle() {}
         #[cfg(test)] mod tests { fn t(used: super::Used) { used.tested(); super::idle(); } }",
    );
    let caller =
        parse("use library::{LIMIT, Used, idle}; fn main() { println!(\"{}\", Used.called()); }");

    let found = unwired([("library.rs", &*library), ("caller.rs", &*caller)].into_iter());

    let expected = ["library.rs: LIMIT", "library.rs: idle", "library.rs: tested"];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}
