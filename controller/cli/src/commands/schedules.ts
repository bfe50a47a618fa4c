/** `schedule`: what is done by itself, when, and what became of it. */
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { follow, type Started } from '../follow.ts';
import { count } from '../options.ts';
import { bytes, clean, note, print, printFields, printJson, printTable } from '../output.ts';
import type { Named } from '../resolve.ts';
import { type Change, carryOut, changesOf, exported, readSchedules } from '../schedules/apply.ts';
import { Names, resolveSchedule, withIds } from '../schedules/names.ts';
import { type SettingOptions, settingsOf, withSettings } from '../schedules/settings.ts';

export function addSchedules(program: Command): void {
  const schedule = program
    .command('schedule')
    .alias('schedules')
    .description('scheduled tasks: backups that run by themselves');
  addReading(schedule);
  addMaking(schedule);
  addActions(schedule);
  addLooking(schedule);
  addFiles(schedule);
}

const DAY_MS = 86_400_000;

const isJson = (command: Command): boolean => command.optsWithGlobals<GlobalOptions>().json === true;

function addReading(schedule: Command): void {
  schedule
    .command('list', { isDefault: true })
    .description('list the scheduled tasks')
    .action(async (_options, command: Command) => {
      const tasks = await withClient(client => client.all<Named>('/api/scheduled-tasks/'));
      if (isJson(command)) return printJson(tasks);
      printTable(
        ['NAME', 'ACTION', 'EVERY', 'NEXT RUN', 'LAST RUN', 'STATUS', 'ID'],
        tasks.map(task => {
          const last = task.last_run as Json | null;
          const next = task.enabled ? task.next_run : 'not enabled';
          return [
            task.verbose_name,
            task.action,
            task.periodicity,
            next,
            last?.created,
            last?.status,
            task.id,
          ];
        }),
      );
    });
  schedule
    .command('show <task>')
    .description('show a scheduled task')
    .action(async (nameOrId: string, _options, command: Command) => {
      const { task, names } = await withClient(async client => ({
        task: await resolveSchedule(client, nameOrId),
        names: await Names.of(client),
      }));
      if (isJson(command)) return printJson(task);
      const shown = names.in(task);
      const fields = Object.entries(shown).filter(
        ([name, value]) => name !== 'permissions' && !isEmpty(value),
      );
      printFields(
        fields.map(([name, value]) => [name, typeof value === 'object' ? JSON.stringify(value) : value]),
      );
    });
}

const isEmpty = (value: unknown): boolean =>
  value === '' ||
  value === null ||
  value === 0 ||
  value === false ||
  (Array.isArray(value) && value.length === 0);

function addMaking(schedule: Command): void {
  withSettings(schedule.command('create <name>'))
    .description('make a scheduled task')
    .option('--disabled', 'it is not due by itself yet')
    .option('--dry-run', 'only print its next runs, and what they would be about')
    .action(async (name: string, options: SettingOptions & { dryRun?: boolean }, command: Command) => {
      if (options.dryRun)
        return printPreview(
          await withClient(async client =>
            client.post('/api/scheduled-tasks/preview/', await withIds(client, settingsOf(options))),
          ),
          command,
        );
      const made = await withClient(async client => {
        const settings = await withIds(client, settingsOf(options));
        const enabled = options.disabled ? { enabled: false } : {};
        return client.post<Named>('/api/scheduled-tasks/', { verbose_name: name, ...settings, ...enabled });
      });
      told(made, command);
    });
  withSettings(schedule.command('set <task>'))
    .description('change a scheduled task; what is not named stays')
    .option('--name <name>', 'another name')
    .action(async (nameOrId: string, options: SettingOptions & { name?: string }, command: Command) => {
      const changed = await withClient(async client => {
        const task = await resolveSchedule(client, nameOrId);
        const settings = await withIds(client, settingsOf(options, task), task.action);
        const name = options.name === undefined ? {} : { verbose_name: options.name };
        return client.put<Named>(`/api/scheduled-tasks/${task.id}/`, { ...settings, ...name });
      });
      told(changed, command);
    });
}

function told(task: Named, command: Command): void {
  if (isJson(command)) printJson(task);
  else {
    for (const warning of task.warnings as string[]) note(`warning: ${clean(warning)}`);
    const next = task.next_run ? `next run ${task.next_run}` : 'not due by itself';
    print(`${clean(task.verbose_name)}: ${next}  ${task.id}`);
  }
}

function addActions(schedule: Command): void {
  for (const action of ['enable', 'disable'] as const)
    schedule
      .command(`${action} <task>`)
      .description(
        action === 'enable' ? 'let it be due by itself' : 'let it run only when somebody asks for it',
      )
      .action(async (nameOrId: string, _options, command: Command) => {
        const path = (id: string) => `/api/scheduled-tasks/${id}/${action}/`;
        told(await onTask(nameOrId, (client, { id }) => client.post<Named>(path(id))), command);
      });
  schedule
    .command('copy <task> [name]')
    .description('make one with the same settings, which is not enabled')
    .action(async (nameOrId: string, name: string | undefined, _options, command: Command) => {
      const body = name === undefined ? {} : { verbose_name: name };
      told(
        await onTask(nameOrId, (client, { id }) =>
          client.post<Named>(`/api/scheduled-tasks/${id}/copy/`, body),
        ),
        command,
      );
    });
  schedule
    .command('remove <task>')
    .description('remove it with its history; its backups stay')
    .action(async (nameOrId: string, _options, command: Command) => {
      const removed = await onTask(nameOrId, async (client, task) => {
        await client.post(`/api/scheduled-tasks/${task.id}/remove/`);
        return task;
      });
      if (isJson(command)) printJson({});
      else print(`${clean(removed.verbose_name)}: removed`);
    });
  schedule
    .command('run <task>')
    .description('run it now')
    .option('--no-wait', 'print the task and return at once')
    .action(async (nameOrId: string, { wait }: { wait: boolean }, command: Command) => {
      const json = isJson(command);
      await onTask(nameOrId, async (client, { id, verbose_name }) => {
        const started = await client.post<Started>(`/api/scheduled-tasks/${id}/run/`, {}, { async: 1 });
        if (!wait) return json ? printJson(started) : print(started._task.id);
        const task = await follow(client, started._task.id, json);
        if (json) printJson(task);
        else print(`${clean(verbose_name)}: done`);
      });
    });
}

function onTask<T>(nameOrId: string, work: (client: Client, task: Named) => Promise<T>): Promise<T> {
  return withClient(async client => work(client, await resolveSchedule(client, nameOrId)));
}

function addLooking(schedule: Command): void {
  schedule
    .command('preview <task>')
    .description('its next 20 runs, and what they are about')
    .action(async (nameOrId: string, _options, command: Command) => {
      const preview = await onTask(nameOrId, (client, { id }) =>
        client.get(`/api/scheduled-tasks/${id}/preview/`),
      );
      printPreview(preview, command);
    });
  withSettings(schedule.command('retention <task>'))
    .description(
      'which of its backups stay and which go after the next good one, and why; with settings as it would be with them',
    )
    .action(async (nameOrId: string, options: SettingOptions, command: Command) => {
      const verdicts = await onTask(nameOrId, async (client, task) => {
        const path = `/api/scheduled-tasks/${task.id}/retention-preview/`;
        const changes = await withIds(client, settingsOf(options, task), task.action);
        const body = Object.keys(changes).length === 0 ? undefined : changes;
        // a terminal shows the end: that is what goes
        return client.all(path, { ordering: '-action' }, body);
      });
      if (isJson(command)) return printJson(verdicts);
      printTable(
        ['VM', 'FILE', 'NEWEST', 'SIZE', 'ACTION', 'REASON'],
        verdicts.map(one => [
          (one.domain as Named).verbose_name,
          one.filename,
          one.newest,
          bytes(one.size),
          one.action,
          one.reason,
        ]),
      );
    });
  schedule
    .command('runs <task>')
    .description('its history, the newest first')
    .action(async (nameOrId: string, _options, command: Command) => {
      const runs = await onTask(nameOrId, (client, { id }) => client.all(`/api/scheduled-tasks/${id}/runs/`));
      if (isJson(command)) return printJson(runs);
      printTable(
        ['DUE', 'BEGUN', 'ENDED', 'STATUS', 'VMS', 'REASON'],
        runs.map(run => [
          run.due_time ?? 'by hand',
          run.created,
          run.finished,
          run.status,
          partsText(run),
          run.reason,
        ]),
      );
    });
  schedule
    .command('calendar')
    .description('the runs of all scheduled tasks that are to come, and with --from those that were')
    .option('--from <date>', 'the first day or instant (default: now)')
    .option('--days <n>', 'so many days', count, 7)
    .action(async ({ from, days }: { from?: string; days: number }, command: Command) => {
      const first = from === undefined ? new Date() : new Date(from);
      if (Number.isNaN(first.getTime())) throw new CliError(`"${from}" is no date.`, ExitCode.usage);
      const query = {
        from: first.toISOString(),
        to: new Date(first.getTime() + days * DAY_MS).toISOString(),
      };
      const runs = await withClient(client => client.all('/api/scheduled-tasks/calendar/', query));
      if (isJson(command)) return printJson(runs);
      printTable(
        ['TIME', 'TASK', 'MODE', 'STATUS'],
        runs.map(run => [
          run.time,
          (run.scheduled_task as Named).verbose_name,
          run.mode,
          run.status ?? 'due',
        ]),
      );
    });
  schedule
    .command('queue')
    .description('what waits for its turn')
    .action(async (_options, command: Command) => {
      const waiting = await withClient(client => client.all('/api/scheduled-tasks/queue/'));
      if (isJson(command)) return printJson(waiting);
      printTable(
        ['POSITION', 'TASK', 'VM', 'WAITS FOR'],
        waiting.map(one => [
          one.position,
          (one.scheduled_task as Named).verbose_name,
          (one.entity as Named).verbose_name,
          one.reason,
        ]),
      );
    });
}

function printPreview(preview: Json, command: Command): void {
  if (isJson(command)) {
    printJson(preview);
    return;
  }
  for (const warning of preview.warnings as string[]) note(`warning: ${clean(warning)}`);
  const runs = preview.runs as Json[];
  printTable(
    ['DUE', 'MODE', 'UNTIL'],
    runs.map(run => [run.due_time, run.mode, run.window_end]),
  );
  const targets = preview.targets as Json[];
  printTable(
    ['VM', 'ESTIMATE', 'STATES BY HAND'],
    targets.map(one => [one.verbose_name, bytes(one.estimate), (one.manual_states as string[]).join(', ')]),
  );
}

/** "2 SUCCESS, 1 FAILED". */
function partsText(run: Json): string {
  const counts = new Map<string, number>();
  for (const { status } of run.parts as { status: string }[])
    counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, number]) => `${number} ${status}`).join(', ');
}

function addFiles(schedule: Command): void {
  schedule
    .command('export [task...]')
    .description('print scheduled tasks as YAML, with names instead of ids')
    .action(async (names: string[]) => {
      print((await withClient(client => exported(client, names))).trimEnd());
    });
  schedule
    .command('apply')
    .description('make scheduled tasks as a YAML file says; doing so again changes nothing')
    .requiredOption('-f, --file <file>', 'the file; - is standard input')
    .option('--dry-run', 'only print what would change')
    .action(async ({ file, dryRun }: { file: string; dryRun?: boolean }, command: Command) => {
      const schedules = readSchedules(textOf(file));
      const json = isJson(command);
      const changes = await withClient(async client => {
        const found = await changesOf(client, schedules);
        for (const change of found) {
          if (!dryRun) await carryOut(client, change);
          // each at once: one that is refused ends the command, and people see what was done before
          if (!json) printChange(change);
        }
        return found;
      });
      if (json) printJson(changes.map(({ settings: _settings, ...told }) => told));
    });
}

function textOf(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8');
  } catch (error) {
    throw new CliError(`Cannot read ${file}: ${(error as Error).message}`, ExitCode.usage);
  }
}

const SIGNS = { new: '+', changed: '~', same: '=' } as const;

function printChange({ name, kind, differences }: Change): void {
  print(`${SIGNS[kind]} ${clean(name)}`);
  for (const { field, from, to } of differences) {
    if (field === 'verbose_name') continue;
    const before = kind === 'new' ? '' : `${JSON.stringify(from)} -> `;
    print(`    ${field}: ${clean(before + JSON.stringify(to))}`);
  }
}
