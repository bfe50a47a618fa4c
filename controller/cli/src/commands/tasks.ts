import type { Command } from 'commander';
import { type GlobalOptions, withClient } from '../context.ts';
import { follow, type Task } from '../follow.ts';
import { print, printFields, printJson, printTable } from '../output.ts';
import { resolve } from '../resolve.ts';

interface LogEvent {
  created: string;
  type: string;
  message: string;
  detail_message: string;
}

/** `tasks`: list, show, log, wait, cancel. */
export function addTasks(program: Command): void {
  const tasks = program.command('tasks').description('list the tasks, or act on one');
  tasks
    .command('list', { isDefault: true })
    .description('list the newest tasks')
    .option('--status <status>', 'IN_PROGRESS, SUCCESS, FAILED, CANCELED, LOST or PARTIAL')
    .option('--parent <id>', 'only the parts of this task')
    .option('--node <node>', 'only those of this node')
    .action(async (options: { status?: string; parent?: string; node?: string }, command: Command) => {
      const { results } = await withClient(async client =>
        client.get<{ results: Task[] }>('/api/tasks/', {
          status: options.status,
          parent: options.parent,
          node: options.node && (await resolve(client, 'nodes', options.node)).id,
          ordering: '-created',
          limit: 50,
        }),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(results);
      printTable(
        ['TASK', 'STATUS', 'PROGRESS', 'CREATED', 'ID'],
        results.map(task => [task.verbose_name, task.status, `${task.progress} %`, task.created, task.id]),
      );
    });
  tasks
    .command('show <id>')
    .description('show one task')
    .action(async (id: string, _options, command: Command) => {
      const task = await withClient(client =>
        client.get<Task & Record<string, unknown>>(`/api/tasks/${encodeURIComponent(id)}/`),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(task);
      printFields([
        ['task', task.verbose_name],
        ['id', task.id],
        ['status', task.status],
        ['progress', `${task.progress} % ${task.detail.phase}`],
        ['created', task.created],
        ['finished', task.finished_time ?? ''],
        ['error', task.error ? `${task.error.detail} (${task.error.code})` : ''],
        ['message', task.detail.message],
      ]);
    });
  tasks
    .command('log <id>')
    .description('what happened in a task: its steps and events, the oldest first')
    .action(async (id: string, _options, command: Command) => {
      const { task, events } = await withClient(async client => {
        const found = await client.get<Task>(`/api/tasks/${encodeURIComponent(id)}/`);
        return { task: found, events: await client.all<LogEvent>('/api/events/', { task: found.id }) };
      });
      const lines = [
        ...task.detail.steps.map(({ since, phase, message }) => [since, 'step', phase, message]),
        ...events.map(one => [one.created, one.type, one.message, one.detail_message]),
      ].sort(([a = ''], [b = '']) => (a < b ? -1 : Number(a > b)));
      if (command.optsWithGlobals<GlobalOptions>().json)
        return printJson(lines.map(([time, type, message, detail]) => ({ time, type, message, detail })));
      printTable(['TIME', 'TYPE', 'MESSAGE', 'DETAIL'], lines);
    });
  tasks
    .command('wait <id>')
    .description('follow a task to its end')
    .action(async (id: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      const task = await withClient(client => follow(client, encodeURIComponent(id), json));
      if (json) printJson(task);
      else print(`${task.verbose_name}: ${task.status}`);
    });
  tasks
    .command('cancel <id>')
    .description('cancel a task; what it did is undone')
    .action(async (id: string, _options, command: Command) => {
      const task = await withClient(client => client.put(`/api/tasks/${encodeURIComponent(id)}/cancel/`));
      if (command.optsWithGlobals<GlobalOptions>().json) printJson(task);
    });
}
