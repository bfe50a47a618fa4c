#!/usr/bin/env node
/** The `virtkeep` command: everything goes through the controller's REST API. */
import { Command, CommanderError } from 'commander';
import { addBackup, addBackups } from './commands/backup.ts';
import { addCertificates } from './commands/certificates.ts';
import { addChanges } from './commands/change.ts';
import { addCompletion } from './commands/completion.ts';
import { addGuests } from './commands/guests.ts';
import { addImport } from './commands/import.ts';
import { addJournal } from './commands/journal.ts';
import { addLists } from './commands/lists.ts';
import { addLogin } from './commands/login.ts';
import { addNodes } from './commands/nodes.ts';
import { addNotifications } from './commands/notifications.ts';
import { addPower } from './commands/power.ts';
import { addProtection } from './commands/protection.ts';
import { addRestore } from './commands/restore.ts';
import { addSchedules } from './commands/schedules.ts';
import { addSettings } from './commands/settings.ts';
import { addSnapshots } from './commands/snapshots.ts';
import { addTags } from './commands/tags.ts';
import { addTasks } from './commands/tasks.ts';
import { addTemplates } from './commands/templates.ts';
import { addUpload } from './commands/upload.ts';
import { addUsers } from './commands/users.ts';
import { addVdisks } from './commands/vdisks.ts';
import { CliError, ExitCode } from './exit-codes.ts';
import { note } from './output.ts';
import { withOutputForm } from './output-form.ts';
import { again, onlyShows, watchOf } from './watch.ts';

function buildProgram(): Command {
  const program = new Command('virtkeep')
    .description('Back up, restore, lend and clone the disks of KVM virtual machines')
    .option('--json', 'print JSON, as the REST API has it: the same as -o json')
    .exitOverride()
    .showHelpAfterError('(run with --help for the options)');
  withOutputForm(program);
  addLogin(program);
  addNodes(program);
  addLists(program);
  addPower(program);
  addGuests(program);
  addSnapshots(program);
  addVdisks(program);
  addTemplates(program);
  addBackup(program);
  addBackups(program);
  addChanges(program);
  addUpload(program.command('library').description('files of the data pools'));
  addRestore(program);
  addImport(program);
  addTasks(program);
  addSchedules(program);
  addProtection(program);
  addCertificates(program);
  addNotifications(program);
  addTags(program);
  addSettings(program);
  addUsers(program);
  addJournal(program);
  addCompletion(program);
  program.addHelpText(
    'after',
    '\n--watch[=seconds] with a command that shows something: again and again.\nEnvironment: VIRTKEEP_URL, VIRTKEEP_TOKEN, VIRTKEEP_CA.\nExit codes: 0 done, 1 failed, 2 usage, 3 not allowed, 4 not found, 5 conflict, 6 unreachable, 7 cancelled.',
  );
  return program;
}

function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.ok : ExitCode.usage;
  note(`virtkeep: ${(error as Error).message}`);
  return error instanceof CliError ? error.exitCode : ExitCode.failed;
}

// The reader of a pipe may go away (`| head`): that is no error of ours.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(ExitCode.ok);
});

/** @returns false: it failed */
async function run(args: readonly string[], isWatched: boolean): Promise<boolean> {
  try {
    const program = buildProgram();
    if (isWatched) onlyShows(program);
    await program.parseAsync(args, { from: 'user' });
    return true;
  } catch (error) {
    process.exitCode = exitCodeOf(error);
    return false;
  }
}

try {
  const { args, everyS } = watchOf(process.argv.slice(2));
  if (everyS === undefined) await run(args, false);
  else await again(everyS, () => run(args, true));
} catch (error) {
  process.exitCode = exitCodeOf(error);
}
