"""Which test holds the right value for each bug that users of other harnesses reported; the names are held here.

A key is the public issue, or the program in whose code it was found. Where a bug has more than one side, each has its
test. What is not written yet has no test and says in which part of the work it comes.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent

TESTS: dict[str, str] = {
    # streams, errors, hangs
    "vllm#51030 one stalled stream holds a run for hours": "test_load_cell.py::test_one_stalled_stream_of_64_costs_one_request "
    "test_transport_limits.py::test_a_stalled_stream_keeps_its_chunks_and_the_others_go_on",
    "sglang#32578 1,023 of 1,024 end and the run hangs": "end_to_end/test_bad_servers.py::test_one_stalled_stream_of_1024_costs_itself_and_nothing_else",
    "vllm#57519 an error inside a 200 is a success": "test_decode_record.py::test_http_200_is_no_success "
    "test_sim_faults_client.py::test_the_outcome_is_the_tables",
    "vllm#54708 no token at all is a success with TTFT 0": "test_decode_record.py::test_http_200_is_no_success "
    "test_metrics_summary.py::test_a_failed_request_has_no_latency_rather_than_zero",
    "vllm#54628, ragflow#19498 the end of the connection is taken for the end of the answer": "test_captures.py::test_a_stream_cut_off_at_any_byte_is_never_ok_and_keeps_what_it_said",
    "guidellm#686 a dead worker hangs the run": "test_actors.py::test_a_worker_killed_in_mid_cell_is_lost_the_next_cell_has_a_new_one_and_others_go_on "
    "end_to_end/test_random_kills.py::test_with_the_roles_on_ray",
    "guidellm#431, perf_analyzer#320, inference-perf#435 a late stream hangs the tail": "test_load_cell.py::test_streams_that_never_end_are_cut_at_the_end_of_the_drain",
    "pegainfer#548 a refusal counts one token": "test_client.py::test_a_refusal_in_a_200_stream_is_rejected",
    "aiperf#255 what is in flight at the end is dropped silently": "test_client.py::test_requests_in_flight_when_the_window_closes_may_end_and_are_drain_or_measure "
    "test_load_cell.py::test_what_was_sent_is_the_sum_of_the_outcomes_and_the_window_holds_the_counted",
    "inference-perf#244 Ctrl-C loses the results": "end_to_end/test_interruptions.py::test_ctrl_c_ends_within_seconds_and_the_run_opens_and_resumes "
    "end_to_end/test_random_kills.py::test_with_the_roles_in_process",
    # parsing and transport
    "sglang#6737, sglang#7301, inference-perf#283 an event that is too big": "test_transport.py::test_one_event_of_20_mb_is_read",
    "TRT-LLM#13952, open-webui#24928 128 KB in one event": "test_decode_chat_stream.py::test_an_event_has_no_largest_size "
    "test_transport.py::test_one_event_of_20_mb_is_read",
    "guidellm#487 a bound per worker limits the concurrency": "test_schedule.py::test_a_bound_on_requests_in_flight_is_split_whole_and_never_lost "
    "test_load_closed.py::test_in_flight_equals_the_target_from_the_ramp_to_the_last_issue "
    "test_sim_faults_client.py::test_connections_over_the_limit_are_resets",
    "inference-perf#50, mlcommons/endpoints#386 ports run out": "test_host_checks.py::test_in_a_network_namespace_with_few_ports_the_run_is_refused "
    "test_transport_connections.py::test_connections_are_used_again",
    "vllm#39963 a client that collapses under long prompts": "test_client_checks.py::test_a_client_that_is_overdriven_on_purpose_says_so",
    # timing
    "guidellm#1048, wrk2 what waits in the client is not counted": "end_to_end/test_bad_servers.py::test_a_freeze_shows_from_the_plan_and_hides_from_sending_and_in_a_closed_loop "
    "test_metrics_latencies.py::test_a_server_that_freezes_under_a_constant_rate_shows_from_the_plan",
    "evalscope#1627, evalscope#1641 the start-up is in the window": "test_load_windows.py::test_a_start_up_is_not_stationary_and_what_follows_is",
    "sglang#39398 the warm-up ignores the concurrency": "test_client.py::test_the_warm_up_keeps_to_the_concurrency_too",
    "vllm#3759, vllm#3768 a role-only chunk starts TTFT": "test_metrics_latencies.py::test_a_role_only_chunk_does_not_start_ttft "
    "test_client.py::test_the_first_token_is_not_the_role_chunk",
    "locust#331, locust#1563 a quantile above the maximum": "test_metrics_latencies.py::test_no_quantile_is_above_the_maximum_or_out_of_order "
    "test_metrics_statistics.py::test_of_three_values_each_quantile_is_one_of_them",
    "llmperf#43, llmperf#56, llmperf#59, evalscope#1101 waves in place of refill": "test_client.py::test_in_flight_stays_at_its_target_when_durations_differ",
    "NeMo-Guardrails#2321, NeMo-Guardrails#2323 the ramp is in the statistics": "test_load_phases.py::test_the_window_opens_when_the_load_has_begun_and_as_many_have_ended",
    # tokens and speculative decoding
    "sglang#33193 the peak counts chunks": "test_metrics_throughput.py::test_the_peak_counts_tokens_not_chunks",
    "sglang#12064 the gap of a step is called that of a token": "test_metrics_latencies.py::test_token_gaps_share_a_chunks_gap_among_its_tokens "
    "test_reports_latency_table.py::test_gaps_of_chunks_and_of_tokens_have_names_of_their_own",
    "inference-perf#564 a BOS for each chunk": "test_metrics_throughput.py::test_throughput_counts_tokens_not_chunks",
    "sglang#34743, sglang-jax#1586 acceptance of one rank, or null": "test_metrics_tokens.py::test_a_server_that_cannot_be_read_makes_the_sum_unknown "
    "test_rows.py::test_counters_of_several_servers_are_summed_and_one_that_not_all_give_is_unknown",
    "sglang avg_spec_accept_length is since the boot": "test_metrics_tokens.py::test_two_cells_of_one_server_have_their_own_accept_length",
    "sglang bench_serving assumes the length that was asked for": "test_decode_record.py::test_missing_usage_is_unknown_not_max_tokens "
    "test_metrics_summary.py::test_the_golden_stream_without_running_usage_is_spread_and_assumes_no_length",
    "vllm#13333 43 tokens despite ignore_eos": "test_sim_faults_client.py::test_counts_and_texts_as_the_page_says "
    "test_metrics_tokens.py::test_lengths_are_the_servers_and_stand_beside_what_was_asked",
    "vllm#42532, vllm#24591, sglang#15732 prompts of another length": "test_prompts_prepare.py::test_every_request_has_its_length_to_the_token "
    "test_checks.py::test_prompts_off_in_both_directions_are_seen_though_their_mean_is_right",
    "sglang PR 19977, sglang PR 21037 chunks are merged under load": "test_decode_chat_stream.py::test_merged_chunks_keep_their_tokens",
    "dynamo#11708, smg#2555 continuous_usage_stats is ignored": "test_decode_record.py::test_a_server_that_ignores_continuous_usage_is_labelled "
    "test_server_form.py::test_servers_that_lack_a_mark_or_counts",
    # reasoning and correctness
    "inference-perf#592, sglang#35438, guidellm#737 reasoning is no token": "test_metrics_latencies.py::test_reasoning_starts_ttft_and_the_answer_ttfa",
    "club-3090#1096 the first content makes a fake collapse": "test_decode_record.py::test_reasoning_is_the_first_token_and_no_answer",
    "litellm-docs#559 the thought takes all of max_tokens": "test_decode_record.py::test_a_thought_that_uses_up_max_tokens_has_no_answer "
    "test_grading_story.py::test_an_answer_cut_in_its_thought_is_truncated_and_no_failure",
    "benchlocal-cli#116 code is taken from the thoughts": "test_grading_thinking.py::test_with_a_reasoning_field_the_content_is_the_answer "
    "test_grading_extract.py::test_a_draft_is_not_graded_where_thought_was_expected_and_cut",
    "vllm#44244 thinking cannot be switched": "test_decode_record.py::test_ignore_eos_and_thinking_reach_the_body",
    # cache
    "vllm#54227, vllm#52884, vllm#53920, pegainfer#697 prompts are cached over repeats": "test_client.py::test_two_repeats_on_a_server_with_a_prefix_cache_are_both_cold "
    "test_prompts_salts.py::test_salts_differ_over_index_cell_repeat_run_and_seed",
    # server control and configuration, so far as it is built
    "sglang#28563, harness-qwen#20 an old server answers for the new one": "test_servers.py::test_a_port_that_another_process_answers_is_not_taken_for_the_server",
    "sglang#16756, sglang#31645 children outlive the kill": "test_servers.py::test_a_child_that_left_its_parent_and_session_is_ours_and_is_ended",
    "sglang#34290, sglang#33199 speculation sets the running limit": "test_proof.py::test_the_effective_limit_counts_over_the_resolved_one",
    "sglang#27399 a value is clamped silently": "test_proof.py::test_a_resolved_null_is_a_mismatch_and_an_absent_key_is_unverifiable",
    "llama-toolchest#90, MTPLX#285 a setting is recorded and not applied": "test_proof.py::test_environment_variables_are_proved_only_where_the_server_shows_them",
    # reports
    "guidellm#984 payloads in the report": "test_client.py::test_text_stays_out_of_the_requests_table_and_few_answers_are_kept",
    "guidellm#444 failures are in the latencies": "test_metrics_summary.py::test_latencies_are_over_ok_requests_of_the_window_and_failures_stand_beside_them",
    # found by reading code
    "vllm bench: usage beside choices is ignored": "test_decode_record.py::test_usage_on_an_event_with_choices_is_taken",
    "vllm bench: a buffer is parsed again for each read": "test_decode_sse.py::test_a_20_mb_event_in_1_kb_pieces_takes_linear_work "
    "test_decode_body.py::test_a_million_chunks_take_linear_work",
    "sglang bench_serving: /generate in quadratic time": "test_decode_generate_stream.py::test_an_answer_of_32k_tokens_that_repeats_itself_is_read",
    "mlcommons/endpoints, aiperf: stamps after a hop or a parse": "test_transport_stamps.py::test_a_blocked_loop_reads_late_and_the_arrival_stays_exact",
    "sglang bench_serving: the clock runs on after the last answer": "test_metrics_summary.py::test_throughput_ends_with_the_last_response_whatever_the_client_does_after_it",
    "sglang bench_serving: a chunk of no token divides by zero": "test_metrics_latencies.py::test_a_chunk_of_no_token_divides_by_nothing",
}

LATER: dict[str, str] = {
    "locust#2300 clocks of several hosts differ": "client hosts: one host has one clock",
    "sglang#39651 the state of the cache is not recorded": "server control: cached tokens are, per request",
    "sglang#40659 a hierarchical cache survives the flush": "server control",
    "LMCache#4851, instructlab#2092 memory is not given back on all GPUs": "server control",
    "sglang draft-window flag is ignored by some drafters": "server control",
}


@pytest.mark.parametrize("bug", TESTS)
def test_the_named_tests_are_there(bug: str) -> None:
    for name in TESTS[bug].split():
        file, _, function = name.partition("::")
        text = (HERE / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {function}\(", text, re.MULTILINE), name


def test_a_bug_is_held_or_waits_and_never_both() -> None:
    bugs = [bug.partition(" ")[0] for bug in (*TESTS, *LATER)]
    public = [bug for bug in bugs if "#" in bug]
    assert len(public) == len(set(public))
    assert all(LATER.values())
