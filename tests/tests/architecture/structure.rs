//! Sizes and directions inside crates: cycles between modules, full folders, long functions, types
//! with many methods.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    ImplItem, Item, ItemUse, Type, UseTree,
    spanned::Spanned as _,
    visit::{self, Visit},
};

use super::{
    exceptions,
    syntax::{self, Parsed},
};

const MAX_FILES_PER_FOLDER: usize = 25;
const MAX_FUNCTION_LINES: usize = 80;
const MAX_METHODS_PER_TYPE: usize = 40;

/// Fails with what breaks a rule and is no exception, and with exceptions that are not needed.
fn compare(rule: &str, found: &BTreeSet<String>, exceptions: &[(&str, &str)]) {
    let allowed: BTreeSet<String> = exceptions.iter().map(|(name, _)| (*name).to_owned()).collect();
    let new: Vec<_> = found.difference(&allowed).collect();
    let old: Vec<_> = allowed.difference(found).collect();
    assert!(new.is_empty(), "{rule}: {new:#?}");
    assert!(old.is_empty(), "no longer needed in tests/tests/architecture/exceptions.rs: {old:#?}");
    for (name, reason) in exceptions {
        assert!(reason.len() > 10, "`{name}` needs a reason");
    }
}

#[test]
fn no_folder_has_more_files_than_a_reader_can_survey() {
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for parsed in syntax::production() {
        let folder = parsed.source.path.parent().unwrap().display().to_string();
        *files.entry(folder).or_default() += 1;
    }
    let found = files.into_iter().filter(|(_, count)| *count > MAX_FILES_PER_FOLDER);

    let found = found.map(|(folder, _)| folder).collect();
    compare("more than 25 files", &found, exceptions::FULL_FOLDERS);
}

/// The functions of a file that are too long, as `file: name`.
struct LongFunctions<'a> {
    parsed: &'a Parsed,
    found: BTreeSet<String>,
}

impl LongFunctions<'_> {
    fn check(&mut self, name: &syn::Ident, span: proc_macro2::Span) {
        let lines = self.parsed.source.text.lines().skip(span.start().line - 1);
        let lines = lines.take(span.end().line + 1 - span.start().line).map(str::trim);
        let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        if code > MAX_FUNCTION_LINES {
            self.found.insert(format!("{}: {name}", self.parsed.source.path.display()));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !syntax::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig.ident, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.sig.ident, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn no_function_is_longer_than_a_screen() {
    let mut found = BTreeSet::new();
    for parsed in syntax::production() {
        let mut long = LongFunctions { parsed: &parsed, found: BTreeSet::new() };
        parsed.items.iter().for_each(|item| long.visit_item(item));
        found.append(&mut long.found);
    }
    compare("more than 80 lines", &found, exceptions::LONG_FUNCTIONS);
}

#[test]
fn no_type_has_more_methods_than_a_reader_can_survey() {
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    for parsed in syntax::production() {
        for item in &parsed.items {
            let Item::Impl(block) = item else { continue };
            let Type::Path(own) = &*block.self_ty else { continue };
            if block.trait_.is_some() {
                continue;
            }
            let name = &own.path.segments.last().unwrap().ident;
            let count = block.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
            *methods.entry(format!("{}: {name}", parsed.krate)).or_default() += count;
        }
    }
    let found = methods.into_iter().filter(|(_, count)| *count > MAX_METHODS_PER_TYPE);

    let found = found.map(|(name, _)| name).collect();
    compare("more than 40 methods", &found, exceptions::LARGE_TYPES);
}

/// Modules at the top of each crate and the modules of the same crate that they use.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The paths that begin with `crate::`, by their second name.
#[derive(Default)]
struct CratePaths(BTreeSet<String>);

impl CratePaths {
    fn tree(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) if path.ident == "crate" => self.first_names(&path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree)),
            UseTree::Path(_) | UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => {}
        }
    }

    fn first_names(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => drop(self.0.insert(path.ident.to_string())),
            UseTree::Name(name) => drop(self.0.insert(name.ident.to_string())),
            UseTree::Rename(name) => drop(self.0.insert(name.ident.to_string())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.first_names(tree)),
            UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for CratePaths {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !syntax::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "crate")
            && let Some(second) = segments.next()
        {
            self.0.insert(second.ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

/// The names that `lib.rs` re-exports, with the module of each.
fn exports(tree: &UseTree, module: Option<&str>, names: &mut BTreeMap<String, String>) {
    match tree {
        UseTree::Path(path) if ["crate", "self"].iter().any(|own| path.ident == own) => {
            exports(&path.tree, module, names);
        }
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            exports(&path.tree, module.or(Some(&first)), names);
        }
        UseTree::Name(name) => {
            let module = module.unwrap_or_default().to_owned();
            names.insert(name.ident.to_string(), module);
        }
        UseTree::Rename(name) => {
            let module = module.unwrap_or_default().to_owned();
            names.insert(name.rename.to_string(), module);
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| exports(tree, module, names));
        }
        UseTree::Glob(_) => {}
    }
}

fn uses() -> Uses {
    let files = syntax::production();
    let mut exported: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    for root in files.iter().filter(|parsed| parsed.module.is_empty()) {
        let names = exported.entry(&root.krate).or_default();
        for item in &root.items {
            if let Item::Use(item) = item {
                exports(&item.tree, None, names);
            }
        }
    }
    let mut uses = Uses::new();
    for parsed in files.iter().filter(|parsed| !parsed.module.is_empty()) {
        uses.entry(parsed.krate.clone()).or_default().entry(parsed.module.clone()).or_default();
    }
    for parsed in files.iter().filter(|parsed| !parsed.module.is_empty()) {
        let mut paths = CratePaths::default();
        parsed.items.iter().for_each(|item| paths.visit_item(item));
        let modules: BTreeSet<String> = uses[&parsed.krate].keys().cloned().collect();
        let names = exported.get(parsed.krate.as_str());
        let module_of = |name: String| match modules.contains(&name) {
            true => Some(name),
            false => names?.get(&name).cloned().filter(|module| modules.contains(module)),
        };
        let used = paths.0.into_iter().filter_map(module_of);
        let used: BTreeSet<String> = used.filter(|module| *module != parsed.module).collect();
        uses.get_mut(&parsed.krate).unwrap().get_mut(&parsed.module).unwrap().extend(used);
    }
    uses
}

/// The modules that can be reached from one.
fn reachable(from: &str, uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut left = vec![from.to_owned()];
    while let Some(module) = left.pop() {
        for next in uses.get(&module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    seen
}

/// Groups of modules of which each can be reached from each other one.
fn cycles(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|module| (module, reachable(module, uses))).collect();
    let mut found = BTreeSet::new();
    for (module, from) in &reached {
        if from.contains(*module) {
            let both = from.iter().filter(|other| reached[other].contains(*module));
            found.insert(both.cloned().collect());
        }
    }
    found
}

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let mut found = BTreeSet::new();
    for (krate, uses) in uses() {
        found.extend(cycles(&uses).iter().map(|cycle| format!("{krate}: {}", cycle.join(" "))));
    }
    compare("cycles between modules", &found, exceptions::CYCLES);
}

#[test]
fn a_cycle_is_found_with_all_its_modules() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            uses.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            uses.entry((*to).to_owned()).or_default();
        }
        uses
    };

    let found = cycles(&uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("a", "e")]));
    assert_eq!(found, BTreeSet::from([["a", "b", "c"].map(str::to_owned).to_vec()]));
    assert!(cycles(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
}
