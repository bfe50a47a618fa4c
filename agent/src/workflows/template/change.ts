/**
 * Change of a template by one of its thin clones (specification 4.7): the clone's changes go into the template's disks, the
 * disks of all its thin clones are made anew from them.
 *
 * check → copy → prepare → switch. Everything new is made beside what it is to replace; the commit in the journal is the
 * one switch. Before it, a failure, a cancel or a crash leaves the old world untouched; after it, the effect
 * `template_change` brings the new one about, in this run of the agent or the next.
 */
import { basename } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ChangeTemplateRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { changedSource, markSources, type SourceMark } from '../../disks/index.ts';
import { requireReplaceable } from '../../images/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { makeNewFile } from '../new-file.ts';
import { readChangeFacts } from './change-facts.ts';
import { type ChangeFacts, type ChangePlan, planChange } from './change-plan.ts';
import { foldChanges } from './fold.ts';
import { bytesOf, makeOverlay } from './images.ts';
import { switchTemplate } from './switch.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const CHANGE_TEMPLATE_STEPS = ['check', 'copy', 'prepare', 'switch'] as const;

/**
 * The workflow. Result: as `TemplateService.Change` tells.
 * @param heldIds the template and its thin clones, as the operation holds them
 */
export function changeTemplateWorkflow(
  dependencies: WorkflowDependencies,
  request: ChangeTemplateRequest,
  heldIds: readonly string[],
): Workflow {
  return context =>
    run(dependencies, request.domainId, heldIds, context).catch(error => {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'change_template');
    });
}

interface Checked {
  facts: ChangeFacts;
  plan: ChangePlan;
  marks: SourceMark[];
}

async function run(
  dependencies: WorkflowDependencies,
  cloneId: string,
  heldIds: readonly string[],
  context: OperationContext,
): Promise<void> {
  const look = () => check(dependencies, cloneId, heldIds, context);
  const checked = await context.step('check', look);
  const { plan, facts } = checked;
  for (const warning of plan.warnings) context.warn(warning);
  await context.step('copy', () => copyDisks(context, plan));
  const change = {
    templateId: facts.template.id,
    version: facts.template.metadata.templateVersion + 1,
    cloneIds: facts.clones.map(({ id }) => id),
    // an empty overlay goes with the template of before, a former one not with that of after
    files: [...plan.overlays, ...plan.disks].map(({ domainId, from, to }) => ({ domainId, from, to })),
  };
  const handle = await context.step('prepare', async () => {
    for (const { from, backing, virtualSize } of plan.overlays) {
      await makeNewFile(context, from, true);
      await makeOverlay(from, backing, virtualSize, context.signal);
    }
    // whoever started one of them meanwhile by other means: nothing is lost yet
    await look();
    await refuseChanged(checked);
    await requireReplaceable(
      dependencies,
      change.files.map(({ to }) => to),
      {
        leaving: [change.templateId, ...change.cloneIds],
        arriving: change.files.map(({ from }) => from),
        signal: context.signal,
      },
    );
    return context.effects.begin({ type: 'template_change', ...change }, 'success');
  });
  const { templateId, version, cloneIds } = change;
  context.commit({ $case: 'changeTemplate', value: { templateId, version, clones: cloneIds } });
  await context.step('switch', async () => {
    await switchTemplate(dependencies, change, context);
    handle.keep();
  });
}

/** @throws VirtkeepError template_change_refused with every reason */
async function check(
  dependencies: WorkflowDependencies,
  cloneId: string,
  heldIds: readonly string[],
  { id, signal }: OperationContext,
): Promise<Checked> {
  const pools = await dependencies.pools(signal);
  const facts = await readChangeFacts(dependencies.libvirt(), cloneId, heldIds, pools);
  const plan = planChange(facts, id);
  if ('reasons' in plan) throw refused(facts, plan.reasons.join('; '));
  const files = plan.disks.flatMap(({ changed }) => changed.layers.map(({ path }) => path));
  return { facts, plan, marks: await markSources(files) };
}

const refused = ({ template }: ChangeFacts, reasons: string) =>
  new VirtkeepError('template_change_refused', { domain: template.name, reasons });

async function refuseChanged({ facts, marks }: Checked): Promise<void> {
  const changed = await changedSource(marks);
  if (changed !== undefined) throw refused(facts, `${basename(changed)} was written to meanwhile`);
}

async function copyDisks(context: OperationContext, { disks }: ChangePlan): Promise<void> {
  const { progress } = context;
  progress.total(disks.reduce((sum, { changed }) => sum + bytesOf(changed), 0));
  let doneBytes = 0;
  for (const disk of disks) {
    const bytes = bytesOf(disk.changed);
    await foldChanges(context, disk, share => progress.done(doneBytes + Math.round(share * bytes)));
    doneBytes += bytes;
  }
}
