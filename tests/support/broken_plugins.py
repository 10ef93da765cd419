"""Helper for plugins that break one promise of the kit, and otherwise equal a correct one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from spec_core.testing import (
    ConstraintConformance,
    ControllerConformance,
    DrafterConformance,
    RollbackConformance,
    RuleConformance,
    TargetConformance,
)
from tests.kit import broken_constraints as constraints
from tests.kit import broken_controllers as controllers
from tests.kit import broken_drafters as drafters
from tests.kit import broken_owners as owners
from tests.kit import broken_rules as rules
from tests.kit import broken_target_parts as parts
from tests.kit import broken_targets as targets

KITS = {
    "Methods": DrafterConformance,
    "Owners of state": RollbackConformance,
    "Acceptance rules": RuleConformance,
    "Targets": TargetConformance,
    "Controllers": ControllerConformance,
    "Constraints": ConstraintConformance,
}


@attrs.frozen(eq=False)
class Case:
    """The check ``check`` of ``kit`` must fail on what ``broken`` makes, and pass on what ``healthy`` makes."""

    kit: type
    check: str
    broken: Callable[[], Any]
    healthy: Callable[[], Any]
    declared: dict[str, Any] = attrs.field(factory=dict)

    def __str__(self) -> str:
        return f"{self.broken.__name__}-{self.check.removeprefix('test_')}"


def drafter(check: str, broken: Any, healthy: Any = drafters.Lookup, **declared: Any) -> Case:
    return Case(DrafterConformance, f"test_{check}", broken, healthy, declared)


DRAFTERS = [
    drafter("text_with_extensions_equals_plain_decoding", drafters.ExpectsItsExtensionToBeTested, drafters.Extends),
    drafter("extensions_follow_the_drafted_tokens", drafters.RepeatsTheDraft, drafters.Extends),
    drafter("extensions_depend_on_the_drafted_tokens", drafters.ReadsNoDraftedToken, drafters.ExtendsFromStates),
    drafter("forwards_of_extensions_are_as_promised", drafters.ReadsEveryDraftedTokenTwice, drafters.ExtendsWithAModel),
    drafter("one_request_is_survived", drafters.Raises),
    drafter("equal_verdicts_give_equal_drafts", drafters.AvoidsByItsSlot, drafters.AvoidsWhatWasRejected),
    drafter("values_of_requests_are_accepted_or_refused", drafters.TakesAnyLength, drafters.TakesALength),
    drafter("a_cache_salt_separates_texts", drafters.PoolsAllTexts, drafters.PoolsBySalt),
    drafter("it_is_made_from_its_settings", drafters.NamesATypeThatIsNotThere),
    drafter("text_equals_plain_decoding", drafters.KeepsItsDrafts),
    drafter("text_does_not_depend_on_the_batch", drafters.OneLogForAll),
    drafter("text_does_not_depend_on_what_is_accepted", drafters.DividesByWhatWasKept),
    drafter("order_of_registration_changes_no_text", drafters.TakesEveryDraftForItsOwn),
    drafter("text_does_not_depend_on_how_state_is_put_back", drafters.ExpectsOneRow),
    drafter("text_ends_where_plain_decoding_ends", drafters.CleansUpWhatIsNotThere),
    drafter("text_under_a_constraint_is_plain", drafters.AdvancesTheConstraint),
    drafter("sequences_come_and_go", drafters.CountsThemIn),
    drafter("a_request_without_it_is_left_alone", drafters.DraftsEverybody),
    drafter("embedded_prompts_are_survived", drafters.LooksUpEveryToken),
    drafter("the_end_of_the_context_is_kept", drafters.HasTooFewPlaces),
    drafter("it_drafts_after_the_kits_prompts", drafters.Mute),
    drafter("drafts_keep_the_budget", drafters.IgnoresTheBudget),
    drafter("no_draft_is_empty", drafters.ProposesNothing),
    drafter("drafted_tokens_are_in_the_vocabulary", drafters.FillsUp),
    drafter("only_offered_sequences_are_drafted", drafters.DraftsEverybody),
    drafter("declared_proposals_are_kept", drafters.SaysAnotherProposal),
    drafter("rows_are_probed_only_where_there_is_room", drafters.ProbesWithoutRoom, drafters.ProbesItsGuesses),
    drafter("declared_proposals_are_kept", drafters.IsGreedyAtEveryTemperature),
    drafter("deterministic_drafts_are_the_same_twice", drafters.ThrowsDice),
    drafter("the_same_request_gets_the_same_drafts", drafters.HasItsOwnChance, drafters.Sampler),
    drafter("rows_are_distributions", drafters.ShowsNoDistribution, drafters.Sampler),
    drafter("rows_only_where_they_are_wanted", drafters.AlwaysShowsRows, drafters.Sampler),
    drafter("drafts_are_drawn_from_their_rows", drafters.DrawsTheBest, drafters.Sampler),
    drafter("positions_are_drawn_again_from_new_numbers", drafters.DrawsFromOldNumbers, drafters.Sampler),
    drafter("logits_are_read_only_if_declared", drafters.ReadsLogitsUnasked),
    drafter("weights_are_read_only_if_declared", drafters.ReadsWeightsUnasked),
    drafter("parts_of_the_target_are_run_only_if_declared", drafters.RunsAPartUnasked, drafters.RunsAPart),
    drafter("the_target_is_run_only_if_declared", drafters.RunsTheTargetUnasked, drafters.RunsTheTarget),
    drafter("keys_and_values_are_read_only_if_declared", drafters.ReadsKeysItDoesNotDeclare, drafters.Attends),
    drafter("keys_and_values_stay_as_they_are", drafters.WritesKeys, drafters.Attends),
    drafter("keys_and_values_of_evaluated_rows_are_read", drafters.ReadsOneRowTooMany, drafters.Attends),
    drafter("forwards_are_as_promised", drafters.SpendsMore, drafters.Spender),
    drafter("compat_reads_metadata_only", drafters.ReadsWeightsEarly),
    drafter("nothing_shown_is_changed", drafters.NormalisesInPlace, drafters.Reader),
    drafter("drafts_equal_those_of_a_fresh_instance", drafters.TakesTheLastRowOnly),
    drafter("it_catches_up", drafters.NeverCatchesUp, drafters.ReadsTheText),
    drafter("rejected_drafts_leave_no_trace", drafters.BelievesItsDrafts),
    drafter("drafts_do_not_depend_on_the_batch", drafters.LearnsFromNeighbours),
    drafter("two_instances_share_nothing", drafters.HasOneKeyForAll, drafters.Counter),
    drafter("a_slot_that_is_used_again_holds_no_old_text", drafters.OnlyAppends),
    drafter("views_are_not_kept", drafters.KeepsTheView, drafters.Reader),
    drafter("asked_after_a_thousand_steps", drafters.DropsItsBacklog),
    drafter("asked_after_a_thousand_steps", drafters.GivesUp),
    drafter("the_backlog_of_an_idle_method_is_bounded", drafters.PutsOffForEver, drafters.Reader),
    drafter(
        "a_conversation_goes_on_after_another_with_the_same_beginning",
        drafters.SharesTheLogItself,
        drafters.SharesRows,
    ),
    drafter("memory_grows_at_most_with_the_text", drafters.CopiesTheText),
    drafter("finished_sequences_are_forgotten", drafters.RemembersEverybody),
]


def owner(check: str, broken: Any) -> Case:
    return Case(RollbackConformance, f"test_{check}", broken, owners.Owner)


OWNERS = [
    owner("one_request_is_survived", owners.Raises),
    owner("it_is_made_from_its_settings", owners.RefusesItsOwnDefault),
    owner("state_after_nothing_was_accepted", owners.CountsTheFirstDraftIn),
    owner("state_after_everything_was_accepted", owners.ThinksNothingIsToBeDone),
    owner("state_after_part_of_a_draft_was_accepted", owners.TakesTheLastRow),
    owner("state_in_steps_without_a_draft", owners.PutsTheLastOneBack),
    owner("state_of_prompts_as_long_as_a_draft", owners.TakesAPromptForADraft),
    owner("state_in_a_mixed_batch", owners.KeepsAsManyForAll),
    owner("state_when_a_stop_lies_inside_the_draft", owners.ReadsTheRawVerdict),
    owner("state_after_trees", owners.KnowsChainsOnly),
    owner("text_equals_plain_decoding", owners.LeavesItOut),
    owner("order_of_owners_changes_nothing", owners.WaitsForTheTarget),
    owner("a_slot_that_is_used_again_begins_anew", owners.RemembersTheSlot),
    owner("checkpoints_stay_as_they_were", owners.KeepsWrongCheckpoints),
    owner("a_step_is_one_forward", owners.ForwardsAgain),
    owner("owned_state_is_declared", owners.OwnsMoreThanThereIs),
    owner("other_targets_are_declined", owners.TakesEveryTarget),
    owner("finished_sequences_are_forgotten", owners.RemembersSequences),
]


def target(check: str, broken: Any, healthy: Any = targets.Healthy) -> Case:
    return Case(TargetConformance, f"test_{check}", broken, healthy, {"batch_tolerance": 1e-12})


def target_part(check: str, broken: Any) -> Case:
    return target(check, broken, parts.HasParts)


TARGETS = [
    target("one_request_is_survived", targets.Raises),
    target("rows_do_not_depend_on_the_rows_beside_them", targets.LooksAtItsNeighbours),
    target("rows_do_not_depend_on_the_draft_behind_them", targets.LooksAtItsNeighbours),
    target("rows_are_as_exact_as_declared", targets.RoundsDifferentlyInABatch),
    target("chunks_give_what_the_whole_gives", targets.ForgetsAtBorders),
    target("tree_rows_equal_chains", targets.TakesTreesForChains),
    target("rejected_rows_leave_no_trace", targets.CommitsDrafts),
    target("kept_paths_are_moved_together", targets.LeavesRowsInPlace),
    target("text_equals_plain_decoding", targets.IsWrongBehindDrafts),
    target("a_prefix_is_reused", targets.OpensAnywhere),
    target("checkpoints_are_restored", targets.RestoresNothing),
    target("hidden_states_are_streams_between_blocks", targets.ShowsTheLastRow),
    target("embeddings_enter_the_first_block", targets.IgnoresEmbeddings),
    target("final_is_what_the_output_matrix_reads", targets.GivesItBeforeTheNorm),
    target("needs_change_no_logits", targets.RoundsWhenWatched),
    target("logits_of_the_rows_that_decide", targets.AnswersEverybody),
    target("tensors_are_found_by_name", targets.HasEveryTensor),
    target("pieces_of_text_make_the_whole", targets.DropsTheEnd),
    target("the_text_after_a_prompt_is_a_part_of_the_whole", targets.DropsTheSpace),
    target("the_tokenizer_is_whole", targets.GivesTextForBytes),
    target("a_failed_forward_harms_nobody_else", targets.HasAPool),
    target("info_matches_the_forward", targets.NamesAnotherVocabulary),
    target("the_whole_context_can_be_used", targets.EndsEarly),
    target("attention_is_owned", targets.OwnsNothing),
    target("requests_with_one_beginning_share_rows", targets.StartsAnew),
    target("a_prefix_can_be_copied", targets.CopiesNothing),
    target_part("the_next_token_layer_is_readable", parts.NamesAMissingTensor),
    target_part("the_next_token_layer_rotates_its_heads", parts.RotatesTooFewPairs),
    target_part("the_layer_executor_has_the_weights_of_the_target", parts.LendsAnotherEmbedding),
    target_part("the_cache_reader_shows_the_rows_of_the_text", parts.ShowsOneRowTooFew),
    target("a_part_of_the_blocks_changes_nothing", parts.WritesEvaluatedRows, parts.RunsParts),
    target("drafts_that_follow_drafts_are_as_in_one_forward", parts.LosesThePath, parts.HoldsDrafts),
    target("draft_rows_are_void_after_another_forward", parts.FollowsVoidRows, parts.HoldsDrafts),
    target("probe_rows_are_evaluated_and_not_kept", parts.LosesThePathOfProbes, parts.HoldsDrafts),
    target("rows_of_a_part_are_those_from_the_first_on", parts.GivesAllRows, parts.RunsParts),
    target_part("training_texts_are_texts", parts.GivesMorePrompts),
]


def rule(check: str, broken: Any, healthy: Any = rules.Matches) -> Case:
    return Case(RuleConformance, f"test_{check}", broken, healthy)


RULES = [
    rule("one_request_is_survived", rules.Raises),
    rule("it_is_made_from_its_settings", rules.RefusesItsOwnDefault),
    rule("verdicts_are_paths_of_the_draft", rules.LeavesThePath),
    rule("declared_proposals_are_judged", rules.ReadsRowsOfAll),
    rule("greedy_text_equals_plain_decoding", rules.KeepsTheFirst),
    rule("greedy_text_equals_plain_decoding", rules.SteersToDrafts, rules.SteersToEvenIds),
    rule("shared_noise_gives_the_text_of_plain_decoding", rules.SaysItsNoiseIsShared, rules.Shared),
    rule("the_distribution_of_the_text_is_the_targets", rules.HasNoResidual, rules.Rejects),
    rule("private_noise_is_not_the_shared_one", rules.CallsSharedNoiseItsOwn),
    rule("banned_tokens_are_never_said", rules.ReadsRawRows),
    rule("penalties_count_the_drafted_prefix", rules.ForgetsThePrefix),
    rule("warpers_are_those_of_plain_decoding", rules.PenalisesPromptsToo, rules.Shared),
    rule("the_same_seed_gives_the_same_text", rules.ThrowsDice),
    rule("sequences_are_decided_each_by_itself", rules.HasOneGenerator),
    rule("private_noise_is_new_for_every_request", rules.ForgetsWhoAsks),
    rule("only_undecided_sequences_are_decided", rules.DecidesEverybody),
    rule("compat_says_what_it_is", rules.JudgesNothing),
    rule("values_of_requests_are_accepted_or_refused", rules.LooksForANumber, rules.TakesANumber),
    rule("values_of_a_request_change_its_own_text_alone", rules.KeepsTheNumberOfTheSlot, rules.TakesANumber),
    rule("finished_sequences_are_forgotten", rules.RemembersSequences),
]


def controller(check: str, broken: Any, healthy: Any = controllers.Halves) -> Case:
    return Case(ControllerConformance, f"test_{check}", broken, healthy)


CONTROLLERS = [
    controller("one_request_is_survived", controllers.Raises),
    controller("it_is_made_from_its_settings", controllers.RefusesItsOwnDefault),
    controller("it_says_that_it_drafts_nothing", controllers.SaysNothing),
    controller("text_equals_plain_decoding", controllers.MakesItGreedy),
    controller("sequences_come_and_go", controllers.CountsThemIn),
    controller("finished_sequences_are_forgotten", controllers.KeepsThemAll),
]


def constraint(check: str, broken: Any) -> Case:
    return Case(ConstraintConformance, f"test_{check}", broken, constraints.Constraint)


CONSTRAINTS = [
    constraint("one_request_is_survived", constraints.RaisesAtTheStart),
    constraint("undone_tokens_leave_no_trace", constraints.KeepsOneUndoneToken),
    constraint("looking_changes_nothing", constraints.AdvancesInForced),
    constraint("masks_of_a_draft_are_those_of_its_tokens", constraints.RepeatsTheFirstMask),
    constraint("tokens_of_the_mask_are_accepted_and_no_others", constraints.AcceptsEveryToken),
    constraint("two_texts_share_nothing", constraints.HasOneTextForAll),
    constraint("text_with_drafts_is_plain", constraints.ForgetsItsDraft),
]

CASES = [*DRAFTERS, *OWNERS, *RULES, *TARGETS, *CONTROLLERS, *CONSTRAINTS]
