"""What must be true of every report, and the tests that say so: a statement without a test, or a test that is gone, fails the suite.

Names of tests are ``file::function``, files under ``tests/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statement:
    """``tests`` hold it, each a part."""

    says: str
    tests: tuple[str, ...]


STATEMENTS: Mapping[int, Statement] = {
    1: Statement(
        "It opens from the file, offline: no script, no address but citations.",
        (
            "reports/writers/test_html.py::test_the_page_runs_no_script_and_loads_nothing",
            "reports/writers/test_browser.py::test_no_request_leaves_and_nothing_runs",
        ),
    ),
    2: Statement(
        "A policy of content is there, and planted markup is inert.",
        (
            "reports/writers/test_html.py::test_the_policy_allows_the_pages_own_style_and_font_only",
            "reports/test_hostile.py::test_html_has_no_element_of_theirs",
            "reports/test_hostile.py::test_a_browser_makes_no_element_of_theirs_either",
        ),
    ),
    3: Statement("Sixty steps take at most 250 kB.", ("reports/writers/test_html.py::test_sixty_steps_stay_small",)),
    4: Statement(
        "The same bytes under another hash seed, on a day that is fixed.",
        (
            "reports/writers/test_html.py::test_bytes_do_not_depend_on_the_hash_seed",
            "reports/test_statements.py::test_another_hash_seed_gives_the_same_report",
            "reports/page/test_build.py::test_the_date_is_the_one_that_is_fixed",
        ),
    ),
    5: Statement(
        "Every number of every format comes from one results object.",
        (
            "reports/writers/test_templates.py::test_templates_compute_nothing",
            "reports/writers/test_markdown.py::test_both_writers_print_the_same_numbers",
            "reports/test_statements.py::test_every_value_of_the_results_is_in_every_format",
            "reports/test_statements.py::test_another_result_changes_every_format",
        ),
    ),
    6: Statement(
        "Every used symbol has a row with unit and source, and no row is unused.",
        (
            "reports/page/test_build.py::test_every_used_symbol_has_a_row_and_no_row_is_unused",
            "reports/page/test_build.py::test_a_symbol_says_where_its_value_comes_from",
            "reports/test_statements.py::test_every_symbol_has_meaning_unit_value_and_source",
        ),
    ),
    7: Statement(
        "In every step before − after is 0, or both are equal at five random points and more, and it says which.",
        (
            "reports/page/test_document.py::test_before_and_after_of_a_step_are_equal",
            "derive/test_identities.py::test_every_step_holds_at_random_sizes",
            "reports/test_walk.py::test_every_step_says_how_it_was_verified",
            "reports/test_walk.py::test_before_gives_after_in_every_step",
        ),
    ),
    8: Statement(
        "Every step names a rule that is there; every link ends somewhere.",
        (
            "reports/page/test_build.py::test_every_step_names_a_rule_that_is_listed",
            "reports/test_walk.py::test_every_step_applies_one_rule_that_is_there",
            "reports/writers/test_html.py::test_every_link_ends_somewhere",
            "reports/writers/test_markdown.py::test_every_link_ends_somewhere",
            "reports/writers/test_tex.py::test_every_reference_has_its_label",
            "reports/writers/test_looks.py::test_links_of_a_shipped_layout_lead_somewhere",
        ),
    ),
    9: Statement(
        "The row with numbers put in reads back to the printed value, exactly.",
        (
            "reports/page/test_build.py::test_the_substituted_row_evaluates_to_the_printed_value",
            "reports/page/test_build.py::test_a_step_whose_numbers_do_not_hold_is_never_printed",
        ),
    ),
    10: Statement(
        "Only what was measured counts as passed; a failure is exit 1 and stands on the first screen.",
        (
            "reports/page/test_build.py::test_only_measured_checks_count_as_passed",
            "reports/page/test_build.py::test_a_failure_shows_on_the_first_screen",
            "reports/writers/test_html.py::test_a_failed_check_shows_before_any_section",
            "reports/cli/test_cli.py::test_a_failed_check_is_exit_1",
        ),
    ),
    11: Statement(
        "Verifying a report derives it anew; any edited digit is exit 1.",
        (
            "reports/live/test_verify.py::test_what_was_not_touched_is_verified",
            "reports/live/test_verify.py::test_every_edited_digit_shows",
            "reports/live/test_verify.py::test_a_number_that_was_edited_is_named_with_place_and_right_value",
            "gallery/test_digits.py::test_every_edited_digit_of_the_gallery_shows",
        ),
    ),
    12: Statement(
        "Tolerances stand beside results.",
        ("reports/test_statements.py::test_a_tolerance_stands_beside_every_measured_result",),
    ),
    13: Statement(
        "Categories add up exactly to their totals.",
        (
            "reports/page/test_build.py::test_terms_close",
            "reports/page/test_document.py::test_terms_add_up_to_their_quantity",
            "reports/page/test_document.py::test_peak_lists_its_candidates",
            "reports/page/test_memory.py::test_the_long_tail_is_one_row_and_the_table_adds_up",
            "reports/test_statements.py::test_roles_of_memory_add_up",
        ),
    ),
    14: Statement(
        "GB is never printed for a value in GiB, FLOP is not FLOP/s, and every quantity has its unit.",
        (
            "reports/typeset/test_numbers.py::test_bytes_are_exact_and_read_in_both_kinds_of_gigabyte",
            "reports/typeset/test_numbers.py::test_a_gibibyte_is_never_written_as_a_gigabyte",
            "reports/typeset/test_numbers.py::test_flop_is_an_amount_and_never_a_rate",
            "reports/test_statements.py::test_every_amount_of_a_page_has_its_unit_and_readings_that_are_right",
        ),
    ),
    15: Statement(
        "Its Markdown is read by markdown-it-py with the expected tables and mathematics, in commands that GitHub allows.",
        (
            "reports/writers/test_markdown.py::test_the_tables_parse",
            "reports/writers/test_markdown.py::test_every_row_has_the_cells_of_its_header",
            "reports/writers/test_markdown.py::test_mathematics_uses_allowed_commands_only",
            "reports/typeset/test_latex.py::test_every_tree_uses_allowed_commands_only",
        ),
    ),
    16: Statement(
        "Its MathML is of the core.",
        (
            "reports/writers/test_html.py::test_mathematics_is_mathml_core",
            "reports/typeset/test_latex.py::test_every_tree_converts_to_mathml_core",
        ),
    ),
    17: Statement(
        "Nothing overflows at 320, 390 and 768 pixels but labelled boxes that take the focus.",
        (
            "reports/writers/test_browser.py::test_nothing_overflows",
            "reports/writers/test_browser.py::test_boxes_that_scroll_have_a_name_and_take_the_focus",
            "reports/writers/test_html.py::test_what_scrolls_is_labelled_and_can_be_reached",
        ),
    ),
    18: Statement(
        "Text of figures has nine pixels at a width of 390, no label lies on another, and all text has a contrast of 4.5 to 1.",
        (
            "reports/writers/test_browser.py::test_figures_can_be_read_on_a_phone",
            "reports/writers/test_browser.py::test_every_text_stands_out_from_its_ground",
            "reports/writers/test_browser.py::test_pale_text_and_wide_boxes_are_noticed",
        ),
    ),
    19: Statement(
        "Color is never the only signal.",
        (
            "reports/page/test_build.py::test_symbolic_proof_and_random_points_have_different_badges",
            "reports/page/test_memory.py::test_every_role_has_a_color_and_a_name",
            "reports/test_statements.py::test_badges_differ_in_sign_and_words_where_they_differ_in_color",
        ),
    ),
    20: Statement(
        "In print no step is split, and its text can be taken out.",
        (
            "reports/writers/test_browser.py::test_printed_every_step_is_there_and_its_text_can_be_taken_out",
            "reports/test_statements.py::test_no_step_is_split_in_print",
        ),
    ),
    21: Statement(
        "A link past the head, a focus that can be seen, headings in order, a language, landmarks, captions and scopes.",
        (
            "reports/writers/test_html.py::test_a_screen_reader_finds_its_way",
            "reports/writers/test_browser.py::test_the_first_tab_leads_past_the_head",
        ),
    ),
    22: Statement(
        "A number never breaks across lines.",
        ("reports/writers/test_html.py::test_numbers_do_not_break", "reports/test_statements.py::test_no_number_breaks_on_a_phone"),
    ),
    23: Statement(
        "Hostile names are inert in HTML, figures, Markdown, LaTeX, on a terminal and as names of files.",
        (
            "reports/test_hostile.py::test_html_has_no_element_of_theirs",
            "reports/test_hostile.py::test_markdown_has_no_element_of_theirs",
            "reports/test_hostile.py::test_latex_has_no_command_of_theirs",
            "reports/test_hostile.py::test_nothing_acts_on_a_terminal",
            "reports/cli/test_hostile_commands.py::test_a_report_goes_into_the_folder_of_that_name_whole_or_not_at_all",
            "reports/cli/test_hostile_commands.py::test_files_of_those_names_are_read_as_any_other",
        ),
    ),
    24: Statement(
        "Integers above 2**53 are text in JSON; standard output is data only.",
        (
            "reports/page/test_document.py::test_integers_beyond_a_double_are_strings",
            "reports/page/test_document.py::test_large_values_survive_a_round_trip",
            "reports/cli/test_cli.py::test_derive_as_json_writes_json_only",
            "reports/cli/test_cli.py::test_what_a_model_prints_does_not_reach_standard_output",
        ),
    ),
    25: Statement(
        "What is unknown is called unknown: never 0, −1 or blank.",
        (
            "reports/page/test_document.py::test_an_unknown_quantity_is_null_with_its_reason",
            "reports/page/test_build.py::test_unknown_quantities_and_unmeasured_ones_are_listed_as_not_covered",
            "reports/test_statements.py::test_what_is_unknown_says_so_in_every_format",
        ),
    ),
}
