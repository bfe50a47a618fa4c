/** What a target is told where it has no templates of its own. */
import type { AnyEventName } from './events.ts';
import type { Template } from './templates.ts';

const RUN_TEXT = `{{#reason}}{{reason}}

{{/reason}}
{{#run}}
Started   {{started}}
Finished  {{finished}} (after {{duration_text}})
VMs       {{counts.total}}: {{counts.succeeded}} succeeded, {{counts.partial}} in part, {{counts.failed}} failed, {{counts.skipped}} skipped, {{counts.canceled}} cancelled

{{#vms}}
{{verbose_name}}: {{outcome}}{{#file}}, {{file}}, {{size_text}} in {{duration_text}}{{/file}}{{#reason}}
    {{reason}}{{/reason}}
{{/vms}}
{{/run}}
{{^run}}
Due       {{started}}
{{/run}}

This is virtkeep at {{controller}}.
`;

const VM_LINE = `{{verbose_name}}{{#node}} on {{node}}{{/node}}: {{state}}{{#last_good}}, last good backup {{last_good}} ({{age_days}} days ago){{/last_good}}{{^last_good}}, no good backup yet{{/last_good}}{{#reason}}
    {{reason}}{{/reason}}`;

export const DEFAULT_TEMPLATES: Readonly<Record<AnyEventName, Template>> = {
  run_failed: {
    subject: 'Backup "{{task.verbose_name}}" {{#run}}failed{{/run}}{{^run}}did not run{{/run}}',
    text: RUN_TEXT,
  },
  run_partial: {
    subject:
      'Backup "{{task.verbose_name}}" {{#counts.failed}}failed for {{counts.failed}} of {{counts.total}} VMs{{/counts.failed}}{{^counts.failed}}succeeded in part{{/counts.failed}}',
    text: RUN_TEXT,
  },
  run_succeeded: { subject: 'Backup "{{task.verbose_name}}" succeeded', text: RUN_TEXT },
  protection_late: {
    subject: 'VMs that are not backed up as they should be',
    text: `{{#vms}}
${VM_LINE}
{{/vms}}

late: the last good backup is older than the scheduled tasks of the VM promise; where none covers it, older than {{days}} days
failing: the last backup failed, and the one before is still new enough
never: there is no good backup

This is virtkeep at {{controller}}.
`,
  },
  summary: {
    subject:
      'Backups of {{date}}: {{counts.protected}} protected, {{counts.late}} late, {{counts.failing}} failing, {{counts.never}} never',
    text: `Protected {{counts.protected}}, late {{counts.late}}, failing {{counts.failing}}, never {{counts.never}}, excluded {{counts.excluded}}.

{{#vms}}
${VM_LINE}
{{/vms}}

This is virtkeep at {{controller}}.
`,
  },
  test: {
    subject: 'Test of a notification',
    text: `{{user}} asked for this test. Notifications reach you.

This is virtkeep at {{controller}}.
`,
  },
};
