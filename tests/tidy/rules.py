"""All rules in one list, and the one way to apply them: with the table of exceptions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.tidy import conduct, imports, shape, texts
from tests.tidy.layout import EXCEPTIONS
from tests.tidy.tree import Breach, Tree

Rule = Callable[[Tree], Iterator[Breach]]

RULES: Final[tuple[Rule, ...]] = (
    imports.packages_are_known,
    imports.packages_import_what_they_may,
    imports.folders_import_what_they_may,
    imports.imports_are_absolute,
    imports.nothing_imports_the_root,
    imports.modules_have_no_cycles,
    imports.third_party_stays_in_its_package,
    shape.folders_are_small,
    shape.functions_fit_a_screen,
    shape.signatures_are_narrow,
    shape.modules_are_short,
    shape.classes_are_small,
    shape.interfaces_are_small,
    shape.classes_are_shallow,
    shape.class_names_are_unique,
    shape.calls_name_their_arguments,
    shape.module_names_say_something,
    shape.class_names_say_something,
    shape.modules_say_why,
    conduct.broad_excepts_report,
    conduct.data_never_becomes_code,
    conduct.pure_packages_touch_nothing,
    conduct.compiled_files_are_fully_typed,
    conduct.compiled_files_stay_out_of_src,
    texts.links_lead_somewhere,
    texts.texts_name_no_machine,
    texts.make_targets_explain_themselves,
)


def breaches(tree: Tree, rule: Rule, exceptions: Mapping[tuple[str, str], str] = EXCEPTIONS) -> Iterator[Breach]:
    """What breaks the rule and is not excepted, then the exceptions of this rule that excuse nothing."""
    needed = set()
    for breach in rule(tree):
        if (rule.__name__, breach.subject) in exceptions:
            needed.add(breach.subject)
        else:
            yield breach
    for (name, subject), reason in exceptions.items():
        if name == rule.__name__ and subject not in needed:
            yield Breach("tests/tidy/layout.py", 1, subject, f"the exception ({reason}) excuses nothing any more")


def unknown_rules(exceptions: Mapping[tuple[str, str], str] = EXCEPTIONS) -> list[str]:
    """Exceptions that no rule could ever use, or that give no reason."""
    names = {rule.__name__ for rule in RULES}
    return [f"{rule}: {subject}" for (rule, subject), why in exceptions.items() if rule not in names or not why.strip()]
