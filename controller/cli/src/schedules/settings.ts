/** The settings of a scheduled task as options of the command line. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Json } from '../client.ts';
import { bandwidth, count, seconds } from '../options.ts';
import { type TimingOptions, timingOf, weekdaysOf } from './timing.ts';

export interface SettingOptions extends TimingOptions {
  action?: string;
  vm?: string[];
  tag?: string[];
  node?: string[];
  all?: boolean;
  exclude?: string[];
  excludeTag?: string[];
  pool?: string;
  incremental?: boolean;
  increment?: boolean;
  fullOn?: string;
  hold?: boolean;
  compress?: boolean;
  hash?: boolean;
  iso?: boolean;
  requireConsistency?: boolean;
  incrementLimit?: number;
  keepManualStates?: boolean;
  parallel?: number;
  until?: string;
  cancelAtEnd?: boolean;
  bandwidth?: number;
  retries?: number;
  retryDelay?: number;
  keep?: number;
  keepDays?: number;
  keepBy?: Json;
  freeSpace?: boolean;
  keepStates?: number;
  newArchive?: boolean;
  skipMissed?: boolean;
  nameTemplate?: string;
  description?: string;
  disabled?: boolean;
}

/** The settings, as options of `create` and `set`. */
export function withSettings(command: Command): Command {
  return command
    .addOption(new Option('--action <action>', 'what is done').choices(['backup', 'verify', 'scan']))
    .option('--vm <vm...>', 'these VMs (data pools of a scan)')
    .option('--tag <tag...>', 'all that bear one of these tags when it runs')
    .option('--node <node...>', 'all of these nodes when it runs')
    .option('--all', 'all there are when it runs')
    .option('--exclude <vm...>', 'not these')
    .option('--exclude-tag <tag...>', 'nothing that bears one of these tags')
    .option('--daily <time>', 'every day at this time, as 02:00')
    .option('--hourly [hours]', 'every so many hours')
    .option('--weekly <days@time>', 'on these weekdays, as sun,wed@02:00')
    .option('--monthly <day@time>', 'as 1@02:00, last@02:00, first-sun@02:00')
    .option('--once <date>', 'at this instant, as 2026-03-01T02:00')
    .option('--cron <expression>', 'minute, hour, day, month, weekday')
    .option(
      '--zone <zone>',
      'time zone, as Europe/Berlin (default: that of the task, of a new one that of this machine)',
    )
    .option('--start <date>', 'not before')
    .option('--skip-missed', 'a run that was missed is not made up for')
    .option('--pool <pool>', "data pool for the files (default: the base data pool of each VM's node)")
    .option('--increment', 'extend the newest backup that can be extended, else make a new one')
    .option('--full-on <days>', 'on these weekdays a full backup instead, as sun')
    .option('--incremental', 'full backups that can be extended later')
    .option('--hold', 'keep all saved states of increments on the VM')
    .option('--compress', 'compress with zstd')
    .option('--hash', 'record a SHA-256 of every member, and verify what was made')
    .option('--no-iso', 'leave the mounted ISO images out')
    .option('--require-consistency', 'fail when the guest agent cannot freeze the file systems')
    .option('--increment-limit <n>', 'after so many increments delete all saved states of the VM', whole)
    .option('--keep-manual-states', 'but not those that people made')
    .option('--keep <n>', 'keep so many backups of each VM', whole)
    .option('--keep-days <days>', 'delete older ones', whole)
    .option(
      '--keep-by <rules>',
      'the newest of each of so many periods, as daily=7,weekly=4,monthly=12',
      periods,
    )
    .option('--free-space', 'delete the oldest ones when the pool has no space for the next one')
    .option('--keep-states <n>', 'restore points that an incremental backup holds at most', whole)
    .option('--new-archive', 'begin a new backup then, instead of taking the oldest out')
    .option('--parallel <n>', 'VMs at a time; 0: all at once, as far as schedules.per_node allows', whole)
    .option('--until <time>', 'what has not begun by this time of day does not, as 06:00')
    .option('--cancel-at-end', 'and what runs then is cancelled')
    .option('--bandwidth <bytes>', 'most bytes per second on a node, e.g. 50M', bandwidth)
    .option('--retries <n>', 'further attempts after an error that may pass', whole)
    .option('--retry-delay <seconds>', 'before the first of them', seconds)
    .option('--name-template <text>', 'description of its backups, as "{vm} of {date}"')
    .option('--description <text>', 'free text');
}

function whole(text: string): number {
  return text === '0' ? 0 : count(text);
}

function periods(text: string): Json {
  const entries = text.split(',').map(part => part.split('='));
  if (entries.some(([period, number]) => !period || !number || !/^\d+$/.test(number)))
    throw new InvalidArgumentError('It is a list as daily=7,weekly=4.');
  return Object.fromEntries(entries.map(([period, number]) => [period, Number(number)]));
}

/** What was said, as the API has it; names stand for ids. */
export function settingsOf(options: SettingOptions, before: Json = {}): Json {
  const backup = {
    ...(options.pool === undefined ? {} : { datapool: options.pool }),
    ...(options.increment ? { increment: true } : {}),
    ...(options.incremental ? { can_be_incremental: true } : {}),
    ...(options.hold ? { hold_states: true } : {}),
    ...(options.compress ? { compress: true } : {}),
    ...(options.hash ? { hash_sum: true } : {}),
    ...(options.iso === false ? { exclude_iso: true } : {}),
    ...(options.requireConsistency ? { require_consistency: true } : {}),
  };
  const chosen = options.all || options.vm || options.tag || options.node;
  const selection = {
    all: options.all === true,
    entities: options.vm ?? [],
    tags: options.tag ?? [],
    nodes: options.node ?? [],
  };
  const settings: Json = {
    action: options.action,
    ...(chosen ? selection : {}),
    exclude_entities: options.exclude,
    exclude_tags: options.excludeTag,
    ...timingOf(options, new Date(), before),
    missed_run: options.skipMissed ? 'skip' : undefined,
    ...(Object.keys(backup).length > 0
      ? { options: { ...((before.options ?? {}) as Json), ...backup } }
      : {}),
    full_weekdays: options.fullOn === undefined ? undefined : weekdaysOf(options.fullOn),
    increment_limit: options.incrementLimit,
    keep_manual_states: options.keepManualStates,
    keep_count: options.keep,
    limit_days: options.keepDays,
    keep: options.keepBy,
    free_space_cleanup: options.freeSpace,
    keep_states: options.keepStates,
    keep_states_by: options.newArchive ? 'new_archive' : undefined,
    parallel_limit: options.parallel,
    window_end: options.until,
    window_action: options.cancelAtEnd ? 'cancel' : undefined,
    bandwidth: options.bandwidth,
    retries: options.retries,
    retry_delay_s: options.retryDelay,
    name_template: options.nameTemplate,
    description: options.description,
  };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
}
