import { expect, test } from '@jest/globals';
import { ALL_EVENTS, EXAMPLE_DATA, type RunData } from './events.ts';
import { checkTemplate, MAX_TEXT_TEMPLATE, render } from './templates.ts';

const of = (data: object, event: 'run_failed' | 'summary' = 'run_failed') => ({
  event,
  data,
  created: '2026-03-02T02:04:10.000Z',
  controller: 'backup.example.org',
});
const RUN = EXAMPLE_DATA.run_failed;
const withVms = (...vms: Partial<RunData['vms'][number]>[]): RunData => ({
  ...RUN,
  vms: vms.map(vm => ({ ...RUN.vms[0]!, ...vm })),
});
const refusal = (template: string, event: (typeof ALL_EVENTS)[number] = 'run_failed') => {
  try {
    checkTemplate(event, template, 'text');
  } catch (error) {
    return (error as Error).message;
  }
  return '';
};

test.each(ALL_EVENTS)('the default of %s is a good template and leaves nothing open', event => {
  const { subject, text } = render({ ...of(EXAMPLE_DATA[event]), event });
  expect(subject).toMatch(/^[^\n{}]{5,100}$/);
  expect(text).toContain('This is virtkeep at backup.example.org.');
  expect(text).not.toMatch(/[{}]|undefined|null|\[object/);
});

test('a VM whose last backup failed is not said to be without a good one for days', () => {
  const data = { days: 7, vms: [{ ...EXAMPLE_DATA.protection_late.vms[0]!, state: 'failing', age_days: 1 }] };
  const { subject, text } = render({ ...of(data), event: 'protection_late' });
  expect(subject).toBe('VMs that are not backed up as they should be');
  expect(text.split('\n')[0]).toMatch(/^web-1 on n1: failing, last good backup .* \(1 days ago\)$/);
});

test('a run is told VM by VM, with sizes and times that people read', () => {
  expect(render(of(RUN))).toEqual({
    subject: 'Backup "nightly" failed',
    text: `Started   2026-03-02T02:00:00.000Z
Finished  2026-03-02T02:04:10.000Z (after 4 min 10 s)
VMs       2: 1 succeeded, 0 in part, 1 failed, 0 skipped, 0 cancelled

web-1: succeeded, web-1_20260302T020000Z.tar.zst, 1.20 GiB in 3 min 00 s
db-1: failed
    No space left on the device while writing db-1.tar. What was written has been removed.

This is virtkeep at backup.example.org.
`,
  });
});

test('an own template takes the place of the default, each part by itself', () => {
  const own = { run_failed: { subject: '[{{controller}}] {{event}} {{#vms}}{{verbose_name}} {{/vms}}' } };
  const { subject, text } = render(of(RUN), own);
  expect(subject).toBe('[backup.example.org] run_failed web-1 db-1');
  expect(text).toBe(render(of(RUN)).text);
});

test('nothing is escaped: it is no HTML', () => {
  const { text } = render(of({ ...RUN, reason: 'a < b & "c"' }), {
    run_failed: { text: '{{reason}} {{{reason}}} {{&reason}}' },
  });
  expect(text).toBe('a < b & "c" a < b & "c" a < b & "c"');
});

test('a subject is one line, whatever a task is called', () => {
  for (const name of ['a\r\nBcc: eve@example.org', 'a\nb', 'a\u2028b', 'a\u0000b', 'a\r\r\n\n b']) {
    const data = { ...RUN, task: { id: '', verbose_name: name } };
    const { subject } = render(of(data));
    expect(subject).toMatch(/^[\x20-\x7e]+$/);
    expect(
      render(of(data), { run_failed: { subject: `x\r\ny: {{task.verbose_name}}` } }).subject,
    ).not.toMatch(/[\r\n]/);
  }
  expect(render(of({ ...RUN, task: { id: '', verbose_name: 'x'.repeat(5000) } })).subject.length).toBe(200);
});

test('what names of VMs and reasons contain stays on its line and is no template', () => {
  const data = withVms({ verbose_name: '{{controller}}{{#vms}}', reason: 'first\nsecond\u001b[2J' });
  const { text } = render(of(data), { run_failed: { text: '{{#vms}}{{verbose_name}}|{{reason}}{{/vms}}' } });
  expect(text).toBe('{{controller}}{{#vms}}|first second [2J');
});

test('a template that names what is not there is refused, with what is', () => {
  expect(refusal('{{vm_name}}')).toContain(
    'names "vm_name"; known are age_days'.replace('age_days', 'canceled'),
  );
  expect(refusal('{{task.name}}')).toContain('names "name"');
  for (const whole of ['task', 'vms', '.', 'vms.', '{vms}', '&task'])
    expect(refusal(`{{${whole}}}`)).toContain('names "');
  expect(refusal('{{date}}')).toContain('names "date"');
  expect(refusal('{{date}}', 'summary')).toBe('');
  expect(
    refusal(
      '{{size_text}} {{duration_text}} {{controller}} {{created}} {{#vms}}{{verbose_name}}{{/vms}}{{^vms}}none{{/vms}} {{! what }}',
    ),
  ).toBe('');
});

test('no template reaches a method, another template or other tags', () => {
  for (const template of [
    '{{constructor}}',
    '{{#constructor.constructor}}return process{{/constructor.constructor}}',
    '{{__proto__}}',
    '{{vms.pop}}',
    '{{vms.map}}',
    '{{verbose_name.length}}',
    '{{toString}}',
  ]) {
    expect(refusal(template)).toContain('names "');
    // and where one got into the database all the same
    const { text } = render(of(RUN), { run_failed: { text: `a${template}b` } });
    expect(text.replaceAll(/\d+/g, '')).toBe('ab');
  }
  expect(refusal('{{> other}}')).toContain('includes another template');
  expect(refusal('{{=<% %>=}}<% vms %>')).toContain('sets other tags');
});

test('a template that is none is refused', () => {
  for (const template of ['{{#vms}}', '{{/vms}}', '{{#vms}}{{/task}}', '{{', '{{#vms}', '{{=x=}}'])
    expect(refusal(template)).toMatch(/is no template|sets other tags/);
});

test('a template cannot multiply itself', () => {
  expect(refusal('{{#vms}}{{#vms}}x{{/vms}}{{/vms}}')).toContain('too deep');
  expect(
    refusal(
      '{{#vms}}{{#task}}{{#counts}}{{#reason}}{{#file}}x{{/file}}{{/reason}}{{/counts}}{{/task}}{{/vms}}',
    ),
  ).toContain('too deep');
  const data = withVms(...Array.from({ length: 2000 }, () => ({})));
  const { text } = render(of(data), {
    run_failed: { text: `{{#vms}}${'x'.repeat(MAX_TEXT_TEMPLATE - 20)}{{/vms}}` },
  });
  expect(text.length).toBe(262_144);
});
