//! What the card counts, as a file's syntax tree has it.

use super::Source;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, FnArg, Ident, Lit, Meta, Pat, Signature, Type, TypePath, UseTree};

/// A file's production code.
#[derive(Default)]
pub struct Reading {
    pub path: String,
    /// Blocks of doc comments, with their first lines.
    pub docs: Vec<(usize, String)>,
    pub functions: Vec<Function>,
    /// Names of types, with their lines.
    pub types: Vec<(usize, String)>,
    /// Lines of `Result<_, String>`.
    pub text_errors: Vec<usize>,
    /// Lines of `Result<Result<_, _>, _>`.
    pub nested_results: Vec<usize>,
    /// Lines of `json!`.
    pub json: Vec<usize>,
    /// Lines of `value["key"]`.
    pub look_ups: Vec<usize>,
    /// Paths that `use` brings in or code names, from their first segment; names of re-exports stand apart.
    pub paths: Vec<Vec<String>>,
    /// Public `use`: the path, and the name under which it is there.
    pub exports: Vec<(Vec<String>, String)>,
}

/// A function or method.
pub struct Function {
    pub line: usize,
    pub name: String,
    /// It takes `&mut self` or another `&mut`.
    pub has_mut: bool,
    /// Parameters that are tuples.
    pub tuples: usize,
    /// Parameters, without `self`.
    pub parameters: usize,
    /// It stands in `impl Trait for`, whose author chose the name.
    pub is_of_trait: bool,
}

impl Reading {
    pub fn of(source: &Source) -> Self {
        let file = syn::parse_file(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        let mut reader = Reader { found: Self { path: source.path.clone(), ..Self::default() }, is_of_trait: false };
        reader.visit_file(&file);
        reader.found.docs = blocks(std::mem::take(&mut reader.found.docs));
        reader.found
    }

    pub fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

/// The lines of comments as blocks of lines that follow each other.
fn blocks(mut lines: Vec<(usize, String)>) -> Vec<(usize, String)> {
    lines.sort_unstable_by_key(|(line, _)| *line);
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (line, text) in lines {
        match found.last_mut() {
            Some((_, block)) if line == last + 1 => *block += &text,
            _ => found.push((line, text)),
        }
        last = line;
    }
    found
}

struct Reader {
    found: Reading,
    is_of_trait: bool,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

/// The text of a `doc` attribute.
fn doc(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    let Expr::Lit(text) = &meta.value else { return None };
    let Lit::Str(text) = &text.lit else { return None };
    meta.path.is_ident("doc").then(|| text.value())
}

fn generic_types(path: &TypePath) -> Vec<&Type> {
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return Vec::new() };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(of) => Some(of),
        _ => None,
    });
    types.collect()
}

fn is_named(of: &Type, name: &str) -> bool {
    matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

fn is_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

fn collect_use(tree: &UseTree, before: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let with = |ident: &Ident| before.iter().cloned().chain([ident.to_string()]).collect::<Vec<_>>();
    match tree {
        UseTree::Path(path) => collect_use(&path.tree, &with(&path.ident), found),
        UseTree::Name(name) if name.ident == "self" => {
            found.push((before.to_vec(), before.last().cloned().unwrap_or_default()));
        }
        UseTree::Name(name) => found.push((with(&name.ident), name.ident.to_string())),
        UseTree::Rename(rename) => found.push((with(&rename.ident), rename.rename.to_string())),
        UseTree::Glob(_) => found.push((before.to_vec(), "*".to_owned())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect_use(tree, before, found)),
    }
}

impl Reader {
    fn function(&mut self, signature: &Signature) {
        let mut of = Function {
            line: signature.ident.span().start().line,
            name: signature.ident.to_string(),
            has_mut: false,
            tuples: 0,
            parameters: 0,
            is_of_trait: self.is_of_trait,
        };
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    of.has_mut |= receiver.reference.is_some() && receiver.mutability.is_some();
                }
                FnArg::Typed(parameter) => {
                    of.parameters += 1;
                    of.has_mut |= matches!(&*parameter.ty, Type::Reference(of) if of.mutability.is_some());
                    if is_tuple(&parameter.ty) || matches!(&*parameter.pat, Pat::Tuple(_)) {
                        of.tuples += 1;
                    }
                }
            }
        }
        self.found.functions.push(of);
    }

    fn named_type(&mut self, ident: &Ident) {
        self.found.types.push((ident.span().start().line, ident.to_string()));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        self.found.docs.extend(doc(attribute).map(|text| (attribute.span().start().line, text)));
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(of) => &of.attrs,
            syn::Item::Impl(of) => &of.attrs,
            syn::Item::Mod(of) => &of.attrs,
            syn::Item::Use(of) => &of.attrs,
            syn::Item::Const(of) => &of.attrs,
            syn::Item::Struct(of) => &of.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, of: &'ast syn::ItemImpl) {
        let before = std::mem::replace(&mut self.is_of_trait, of.trait_.is_some());
        visit::visit_item_impl(self, of);
        self.is_of_trait = before;
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        self.function(signature);
        visit::visit_signature(self, signature);
    }

    fn visit_item_struct(&mut self, of: &'ast syn::ItemStruct) {
        self.named_type(&of.ident);
        visit::visit_item_struct(self, of);
    }

    fn visit_item_enum(&mut self, of: &'ast syn::ItemEnum) {
        self.named_type(&of.ident);
        visit::visit_item_enum(self, of);
    }

    fn visit_item_trait(&mut self, of: &'ast syn::ItemTrait) {
        self.named_type(&of.ident);
        visit::visit_item_trait(self, of);
    }

    fn visit_item_type(&mut self, of: &'ast syn::ItemType) {
        self.named_type(&of.ident);
        visit::visit_item_type(self, of);
    }

    fn visit_type_path(&mut self, path: &'ast TypePath) {
        if path.path.segments.last().is_some_and(|last| last.ident == "Result") {
            let types = generic_types(path);
            let line = path.span().start().line;
            if types.get(1).is_some_and(|error| is_named(error, "String")) {
                self.found.text_errors.push(line);
            }
            if types.first().is_some_and(|value| is_named(value, "Result")) {
                self.found.nested_results.push(line);
            }
        }
        visit::visit_type_path(self, path);
    }

    fn visit_macro(&mut self, of: &'ast syn::Macro) {
        if of.path.is_ident("json") {
            self.found.json.push(of.span().start().line);
        }
        visit::visit_macro(self, of);
    }

    fn visit_expr_index(&mut self, of: &'ast syn::ExprIndex) {
        if matches!(&*of.index, Expr::Lit(index) if matches!(index.lit, Lit::Str(_))) {
            self.found.look_ups.push(of.span().start().line);
        }
        visit::visit_expr_index(self, of);
    }

    fn visit_item_use(&mut self, of: &'ast syn::ItemUse) {
        let mut found = Vec::new();
        collect_use(&of.tree, &[], &mut found);
        if matches!(of.vis, syn::Visibility::Inherited) {
            self.found.paths.extend(found.into_iter().map(|(path, _)| path));
        } else {
            self.found.exports.extend(found);
        }
    }

    /// Where an item may be seen from is no use of that place.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}
