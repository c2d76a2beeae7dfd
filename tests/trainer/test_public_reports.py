"""Public reports of training elsewhere that went wrong, logs A to G of the trainer's reference: each row has its test.

A row's tests show the right behaviour here. Where the report is of hardware, they meet a stand-in of it, and
``NOT_SEEN`` says what no test without a GPU can see.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent

ROWS = {
    "A": (1, 2, 3, 5, 6, 7, 9, 10, 11),
    "B": (12, 13, 14, 16, 17, 18, 20),
    "C": (21, 22, 23),
    "D": (24, 25, 26, 28, 29, 30, 32, 33, 34),
    "E": (35, 36, 37, 39, 40, 41),
    "F": (43, 44, 45, 47, 48, 49, 51, 52),
    "G": (53, 54, 55, 57),
}
BESIDE = {
    "B-zero-result",
    "E-error-files",
    "F-stop-flag",
}  # no rows, and named beside them among what CPUs can run

# Row and how: in whole trainings or agents in processes of their own (run), by the code itself (part), or before a
# stand-in of NVML, the host or S3's answers (fake); what was reported; then the tests, without their "test_".
TABLE = """
# A: order of data, resume, uneven ends
A1 run: a resume goes on at the wrong batch
    train_runs::a_stopped_and_resumed_run_is_the_uninterrupted_one
    data_order::a_resume_at_any_step_goes_on_with_the_same_sequence
    any_schedule::what_is_read_is_what_the_uninterrupted_run_reads_each_sample_once_an_epoch
A2 run: state of an epoch's end resumes wrongly
    resume_edges::a_stop_at_the_very_end_of_an_epoch_goes_on_with_the_next_one
A3 run: a resume at an epoch's end does nothing and reports success
    resume_edges::a_stop_at_the_very_end_of_an_epoch_goes_on_with_the_next_one
    resume_edges::a_run_that_is_through_is_done_again_at_once_with_the_same_end
    train_parts::numbers_that_do_not_go_together_are_refused_with_the_arithmetic
A5 run: ranks with fewer batches leave, the others hang
    data_order::a_run_cut_into_worlds_of_any_size_takes_each_sample_as_the_uninterrupted_one
    train_runs::a_run_goes_on_with_another_world_size
    resume_edges::a_held_out_split_of_fewer_samples_than_ranks_is_evaluated_by_those_that_have_one
A6 part: fewer shards than readers: samples are dealt out, not shards; too small a batch is refused
    data_sets::any_number_of_ranks_and_loaders_shares_one_shard
    data_stream::ranks_of_a_node_share_what_was_fetched
    train_parts::numbers_that_do_not_go_together_are_refused_with_the_arithmetic
A7 run: a resume loses the loader's place
    train_runs::a_killed_rank_ends_its_peers_with_32_and_the_run_resumes_from_the_last_checkpoint
    data_stream_runs::a_run_that_is_cut_and_goes_on_in_another_world_reads_the_streamed_order
A9 part: a retry begins at step 0 and overwrites the newer checkpoint
    checkpoint::a_lower_step_is_never_written_and_the_same_step_only_once
    checkpoint::resume_never_does_not_overwrite
    checkpoint::when_no_checkpoint_is_usable_the_run_does_not_start_over
    run_cli::a_used_name_and_a_busy_group_are_refused
A10 run: a killed job's shared memory stops the next: nothing here has a name that outlives it
    loaders::a_trainer_that_is_killed_leaves_neither_loaders_nor_shared_memory
    data_stream::a_new_generations_cache_is_empty_and_the_old_one_is_gone
    selfcheck_host::what_a_killed_nccl_left_is_removed_and_what_is_in_use_stays
A11 run: another world size is refused, or the data begin again
    train_runs::a_run_goes_on_with_another_world_size
    gradients::gradients_losses_and_weights_are_the_same_at_any_world_size
    any_schedule::what_is_read_is_what_the_uninterrupted_run_reads_each_sample_once_an_epoch
# B: precision, numbers that are none, support of GPUs
B12 run: fp16's scale falls to nothing
    train_features::fp16_that_overflows_at_any_scale_ends_with_30
    train_features::fp16_overflows_are_left_out_until_the_scale_fits_and_the_scale_outlives_a_resume
    train_features::a_gradient_without_a_number_is_told_with_the_first_parameter_of_it
B13 run: scaled gradients are clipped
    train_runs::gradients_are_clipped_after_they_were_unscaled
B14 run: the scaler's state is lost at a resume
    checkpoint_state::the_gradient_scaler_goes_on_where_it_was
    train_features::fp16_overflows_are_left_out_until_the_scale_fits_and_the_scale_outlives_a_resume
B16 fake: torch has no kernels for the GPU
    selfcheck_torch::torch_needs_kernels_for_the_gpu_and_the_wheel_is_named
B17 part: half precision on a CPU is slow, and was once wrong
    train_parts::precision_follows_the_hardware
    matmul::cpu_half_precision_ends_within_its_time_box
    matmul::a_correctness_check_has_its_value_on_a_cpu_too
B18 part: MFU above 100 % from a wrong peak
    train_features::mfu_is_told_only_where_the_peak_is_known_and_never_above_1
    devices_floors::the_device_id_decides_and_the_whole_name_only_where_there_is_none
    devices_floors::an_unknown_gpu_has_no_peak_and_no_floor
B20 run: silent corruption, or one slow GPU
    matmul::changing_bits_between_repeats_are_found
    selfcheck_figures::other_bits_than_the_other_gpus_are_silent_corruption
    train_requests::a_rank_that_makes_its_peers_wait_is_named_once
B-zero-result fake: a GPU that computes nothing passes
    selfcheck_figures::a_gpu_slower_than_its_peers_warns_in_a_quick_check_and_fails_in_a_full_one
    matmul::a_product_that_was_not_done_or_is_no_number_is_infinitely_wrong_or_far_off
# C: DDP
C21 run: no_sync round the backward pass alone; the last micro-batch counts wrongly
    gradients::gradients_losses_and_weights_are_the_same_at_any_world_size
    train_features::gradients_are_exchanged_once_a_step_however_many_micro_steps
C22 run: the loss is averaged by micro-batch, not by token
    gradients::every_target_that_counts_weighs_the_same_wherever_it_is
C23 run: checkpointed activations under DDP
    train_features::activation_checkpointing_changes_nothing_but_memory_with_dropout_and_two_ranks
# D: checkpoints and S3
D24 run: an interrupted save under the good name
    checkpoint::death_while_the_file_is_written_leaves_nothing_under_a_good_name
    save_sweep::killed_at_a_stage_of_a_save_the_run_goes_on_from_the_newest_complete_one
D25 part: `latest` moves before the data are durable
    checkpoint::death_at_any_stage_of_a_save_leaves_a_resumable_run
D26 part: the disk fills after hours; a broken checkpoint is chosen
    checkpoint::a_disk_without_room_for_all_that_will_lie_there_is_told_at_the_start
    checkpoint::a_full_disk_during_a_save_keeps_the_old_checkpoint
    checkpoint::a_newest_checkpoint_that_is_not_whole_falls_back_and_says_so
    checkpoint::an_old_writer_that_still_saves_takes_nothing_away_from_the_term_that_begins
D28 run: rank 0 saves for long, and the others time out
    resume_edges::ranks_that_wait_for_a_long_save_do_not_take_rank_0_for_lost
    checkpoint_beside::the_loop_goes_on_while_a_save_is_under_way_and_the_next_one_waits_for_it
D29 part: a checkpoint that cannot be loaded, for what is in it
    models::a_model_that_does_not_fit_is_told_before_the_first_step
    train_runs::a_stopped_and_resumed_run_is_the_uninterrupted_one
D30 fake: a download is shorter than the object
    store::a_short_answer_is_noticed_and_asked_for_again
    store::an_object_that_is_too_short_is_an_integrity_fault
D32 fake: a wrong checksum is not tried again, or of parts not looked at
    store::bytes_that_arrive_altered_are_sent_again_three_times_in_all
    store::an_answer_that_is_not_what_its_checksum_says_is_asked_for_again
    store::a_part_that_arrives_altered_is_sent_again
D33 fake: the clock is off, and every call refused
    selfcheck_host::a_clock_far_off_is_named_before_aws_refuses_every_call
    store::refusals_name_the_object_and_the_way_out
D34 fake: S3 asks for less haste
    store::a_bucket_that_wants_less_haste_or_fails_inside_is_asked_again
    store::every_call_has_time_limits_and_adaptive_retries
# E: NCCL, torchrun, network
E35 fake: 64 MB of shared memory
    selfcheck_host::small_shared_memory_matters_where_several_processes_use_it
E36 fake: what a killed NCCL left
    selfcheck_host::what_a_killed_nccl_left_is_removed_and_what_is_in_use_stays
E37 fake: the wrong interface
    peers::workers_talk_over_the_interface_that_has_the_node_s_address
    selfcheck_figures::the_interface_of_the_first_meeting_is_told_and_dockers_own_is_warned_of
E39 part: torchrun kills workers 30 s after a SIGTERM
    torchrun::workers_have_longer_than_a_save_may_take_before_torchrun_kills_them
    stop_save::a_save_that_takes_too_long_is_given_up_where_an_older_one_is
E40 run: the rendezvous is closed once a node has left
    agent::a_noticed_node_leaves_with_75_and_the_others_go_on_with_its_replacement
    agent::a_worker_killed_by_the_system_leads_to_generation_2_on_the_same_nodes
E41 run: a node's name that its peers cannot resolve
    torchrun::workers_meet_at_an_address_even_where_no_host_name_resolves
E-error-files run: a worker's end says nothing of its cause
    train_runs::reports_are_written_where_the_agent_looks
    train_parts::every_exception_ends_with_a_named_code
# F: containers, drivers, hosts
F43 fake: GPUs vanish from a running container
    selfcheck_host::devices_taken_from_a_container_are_unknown_not_bad
    devices_nvml::a_broken_nvml_is_unknown_and_comes_back
F44 fake: driver and library differ after an upgrade
    selfcheck_host::driver_and_library_of_different_versions_are_both_named
F45 fake: the fabric manager is not ready
    selfcheck_host::a_fabric_manager_that_never_comes_ends_after_three_minutes
F47 fake: a loader's bus error, for shared memory is full
    selfcheck_host::small_shared_memory_matters_where_several_processes_use_it
F48 part: loaders grow by copy-on-write
    loaders::what_a_loader_is_given_grows_with_the_shards_and_not_with_the_samples
F49 run: SIGTERM ends loaders before the save; deaf ones hang the end
    loaders::a_sigterm_that_reaches_the_loaders_ends_no_step_and_none_of_them_outlives_the_training
F51 fake: a fabric manager that was started too early
    selfcheck_host::a_fabric_manager_that_starts_late_is_waited_for
F52 run: the metadata service is not reached from a container
    agent::a_metadata_service_that_falls_silent_is_told_and_the_training_goes_on
    imds::silence_and_refusal_are_unreachable_not_a_crash
F-stop-flag run: ranks stop at different steps
    train_runs::sigterm_is_a_stop_at_a_step_that_all_ranks_share
# G: metrics and logs
G53 part: several processes export on one port
    exporter_devices::nothing_is_left_in_files_and_no_other_process_exports
    exporter::a_port_in_use_is_a_plain_fault
G54 fake: XIDs that never clear, or are missing
    exporter_devices::an_xid_that_both_sources_tell_counts_once
    exporter_devices::each_source_adds_what_the_other_one_misses
    xid::xids_are_counted_by_code_and_none_is_no_zero
G55 part: NaN in JSON
    logs::what_is_no_number_is_null_and_named
    train_parts::events_are_json_even_when_the_loss_is_no_number
G57 fake: metrics of another GPU
    devices_nvml::torch_finds_a_gpu_by_uuid_whatever_the_order
    exporter_devices::series_follow_the_gpu_and_not_its_place_in_the_list
"""

# Of these rows a part is not seen by any test without a GPU, and has not run on one.
NOT_SEEN = {
    "B16": "whether torch then finds kernels: the architectures of a build and of a GPU are given",
    "B18": "the peak of a real GPU by its own PCI id",
    "B20": "a GPU that corrupts; no step is replayed between others, stragglers are found by their time alone",
    "E35": "NCCL's own fault with little shared memory: its size is given",
    "E36": "segments that a real NCCL left: files of their names are",
    "E37": "what NCCL itself chooses: it is told the interface, and its own words are read",
    "F43": "a container of NVIDIA's runtime that loses its devices",
    "F44": "a real driver beside another library",
    "F45": "a real NVSwitch machine, whose state NVML and systemd tell",
    "F47": "the bus error itself",
    "F51": "a real fabric manager at a boot",
    "G54": "XIDs of a real driver",
    "G57": "CUDA's own order of GPUs",
}


def table() -> dict[str, list[str]]:
    """Row to its tests, as module::function; a row that comes twice is a fault."""
    rows: dict[str, list[str]] = {}
    row = ""
    for line in TABLE.strip().splitlines():
        if line.startswith("    "):
            rows[row].append(line.strip())
        elif not line.startswith("#"):
            row, how = re.fullmatch(r"(\S+) (run|part|fake): .+", line).groups()  # type: ignore[union-attr]
            assert row not in rows and how, row
            rows[row] = []
    return rows


@cache
def functions(module: str) -> set[str]:
    tree = ast.parse((FOLDER / f"test_{module}.py").read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_row_of_the_logs_is_there_once_and_has_a_test() -> None:
    log = {f"{part}{number}" for part, numbers in ROWS.items() for number in numbers}
    assert table().keys() == log | BESIDE
    assert all(table().values())
    assert NOT_SEEN.keys() <= log


def test_every_test_that_is_named_exists() -> None:
    named = [name.split("::") for tests in table().values() for name in tests]
    assert [(module, name) for module, name in named if f"test_{name}" not in functions(module)] == []
