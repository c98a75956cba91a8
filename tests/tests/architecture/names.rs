//! Names that the glossary does not use any more.

use std::{collections::BTreeSet, fs, path::Path};

use syn::{
    Ident,
    visit::{self, Visit},
};

use super::syntax;

/// The names in the first column of the table under "Names not used".
fn forbidden() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/glossary.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("## Names not used").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let names = rows.flat_map(|cell| cell.split(", "));
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let names: BTreeSet<String> =
        names.filter(is_name).filter(|name| *name != "not").map(str::to_owned).collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

/// The types, constants and modules that a file defines under a forbidden name.
struct Definitions<'a> {
    forbidden: &'a BTreeSet<String>,
    found: Vec<String>,
}

impl Definitions<'_> {
    fn check(&mut self, name: &Ident) {
        let name = name.to_string();
        if self.forbidden.contains(&name) {
            self.found.push(name);
        }
    }
}

impl<'ast> Visit<'ast> for Definitions<'_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.check(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.check(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.check(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.check(&item.ident);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.check(&item.ident);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.check(&item.ident);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !syntax::is_test(&item.attrs) {
            self.check(&item.ident);
            visit::visit_item_mod(self, item);
        }
    }
}

#[test]
fn names_that_the_glossary_replaces_do_not_return() {
    let forbidden = forbidden();
    let mut found = Vec::new();
    for parsed in syntax::production() {
        let mut definitions = Definitions { forbidden: &forbidden, found: Vec::new() };
        parsed.items.iter().for_each(|item| definitions.visit_item(item));
        let path = parsed.source.path.display();
        found.extend(definitions.found.iter().map(|name| format!("{path}: {name}")));
    }
    assert!(found.is_empty(), "docs/glossary.md says which names to use instead: {found:#?}");
}
