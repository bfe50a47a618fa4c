import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, type NotificationTarget, newKey } from '../../api/client.ts';
import { Dialog } from '../../parts/confirm.tsx';
import { Checks, LongTextField, NumberField, SelectField, TextField } from '../../parts/fields.tsx';
import { useWords } from '../../texts/index.tsx';

type Kind = NotificationTarget['kind'];
type EventName = NotificationTarget['events'][number];
type Security = 'starttls' | 'tls' | 'none';

const EVENTS: readonly EventName[] = [
  'run_failed',
  'run_partial',
  'run_succeeded',
  'protection_late',
  'summary',
];
const PORTS: Record<Security, number> = { starttls: 587, tls: 465, none: 25 };

type Templates = Partial<Record<EventName, { subject?: string; text?: string }>>;

interface Draft {
  verbose_name: string;
  events: EventName[];
  host: string;
  port: number;
  security: Security;
  username: string;
  /** Empty: as it is. */
  password: string;
  from: string;
  to: string;
  url: string;
  /** Empty: as it is. */
  secret: string;
  ca: string;
  /** Its own texts, by event; what is empty is the default. */
  templates: Templates;
}

function draftOf(target: NotificationTarget | undefined): Draft {
  const { mail, webhook } = target ?? {};
  return {
    verbose_name: target?.verbose_name ?? '',
    events: target ? [...target.events] : ['run_failed', 'protection_late'],
    host: mail?.host ?? '',
    port: mail?.port ?? PORTS.starttls,
    security: mail?.security ?? 'starttls',
    username: mail?.username ?? '',
    password: '',
    from: mail?.from ?? '',
    to: mail?.to.join('\n') ?? '',
    url: webhook?.url ?? '',
    secret: '',
    ca: mail?.ca ?? webhook?.ca ?? '',
    templates: target?.templates ?? {},
  };
}

/** Those that say something. */
function said(templates: Templates): Templates {
  const entries = Object.entries(templates).map(([event, { subject = '', text = '' }]) => [
    event,
    { ...(subject === '' ? {} : { subject }), ...(text === '' ? {} : { text }) },
  ]);
  return Object.fromEntries(entries.filter(([, one]) => Object.keys(one as object).length > 0));
}

/** As the API takes it: a secret that is not given stays as it is. */
function bodyOf(draft: Draft, kind: Kind) {
  const { verbose_name, events, url, secret, ca, password, to, host, port, security, username, from } = draft;
  const recipients = to.split(/[\s,;]+/).filter(address => address !== '');
  const mail = {
    host,
    port,
    security,
    username,
    from,
    to: recipients,
    ca,
    ...(password === '' ? {} : { password }),
  };
  return {
    verbose_name,
    events,
    templates: said(draft.templates),
    ...(kind === 'mail' ? { mail } : { webhook: { url, ca, ...(secret === '' ? {} : { secret }) } }),
  };
}

interface EditTargetProps {
  target?: NotificationTarget;
  kind: Kind;
  close: () => void;
}

export function EditTarget({ target, kind, close }: EditTargetProps) {
  const { texts } = useWords();
  const words = texts.notifications;
  const client = useQueryClient();
  const [draft, setDraft] = useState(() => draftOf(target));
  const [key] = useState(newKey);
  const set = (changes: Partial<Draft>) => setDraft(old => ({ ...old, ...changes }));
  const act = async () => {
    const body = bodyOf(draft, kind);
    await answer(
      target === undefined
        ? api.POST('/api/notification-targets/', { body: { ...body, idempotency_key: key } as never })
        : api.PUT('/api/notification-targets/{id}/', { params: { path: { id: target.id } }, body }),
    );
    await client.invalidateQueries({ queryKey: ['targets'] });
  };
  const isReady =
    draft.verbose_name !== '' &&
    (kind === 'mail'
      ? draft.host !== '' && draft.from !== '' && draft.to !== ''
      : draft.url !== '' && (draft.secret !== '' || target !== undefined));
  const title =
    target === undefined
      ? { mail: words.addMail, webhook: words.addWebhook }[kind]
      : words.changeTitle(target.verbose_name);
  return (
    <Dialog title={title} submit={texts.common.save} isReady={isReady} size="medium" act={act} close={close}>
      {fault => (
        <>
          <TextField
            id="target-name"
            label={texts.common.name}
            isRequired
            maxLength={255}
            value={draft.verbose_name}
            error={fault('verbose_name')}
            change={verbose_name => set({ verbose_name })}
          />
          <Checks
            id="target-events"
            label={words.events}
            options={EVENTS.map(event => [event, words.eventNames[event]] as const)}
            chosen={draft.events}
            error={fault('events')}
            change={events => set({ events })}
          />
          {kind === 'mail' ? (
            <MailFields draft={draft} set={set} fault={fault} isNew={target === undefined} />
          ) : (
            <WebhookFields draft={draft} set={set} fault={fault} isNew={target === undefined} />
          )}
          <TemplateFields draft={draft} set={set} fault={fault} />
          <LongTextField
            id="target-ca"
            label={words.ca}
            help={words.caHelp}
            rows={2}
            value={draft.ca}
            error={fault(`${kind}.ca`)}
            change={ca => set({ ca })}
          />
        </>
      )}
    </Dialog>
  );
}

/** Its own texts of one event at a time. */
function TemplateFields({ draft, set, fault }: Omit<FieldsProps, 'isNew'>) {
  const { texts } = useWords();
  const words = texts.notifications;
  const [event, setEvent] = useState<EventName>('run_failed');
  const { subject = '', text = '' } = draft.templates[event] ?? {};
  const change = (part: { subject?: string; text?: string }) =>
    set({ templates: { ...draft.templates, [event]: { subject, text, ...part } } });
  return (
    <details>
      <summary>{words.templates}</summary>
      <SelectField
        id="template-event"
        label={words.event}
        options={EVENTS.map(one => [one, words.eventNames[one]] as const)}
        value={event}
        change={setEvent}
      />
      <TextField
        id="template-subject"
        label={words.subject}
        help={words.templateHelp}
        value={subject}
        error={fault(`templates.${event}.subject`)}
        change={value => change({ subject: value })}
      />
      <LongTextField
        id="template-text"
        label={words.message}
        help={words.templateHelp}
        rows={6}
        value={text}
        error={fault(`templates.${event}.text`)}
        change={value => change({ text: value })}
      />
    </details>
  );
}

interface FieldsProps {
  draft: Draft;
  set: (changes: Partial<Draft>) => void;
  fault: (field: string) => string | undefined;
  isNew: boolean;
}

function MailFields({ draft, set, fault, isNew }: FieldsProps) {
  const { texts } = useWords();
  const words = texts.notifications;
  const text = (field: 'host' | 'username' | 'from', isRequired: boolean) => (
    <TextField
      id={`target-${field}`}
      label={words[field]}
      isRequired={isRequired}
      maxLength={320}
      value={draft[field]}
      error={fault(`mail.${field}`)}
      change={value => set({ [field]: value })}
    />
  );
  return (
    <>
      {text('host', true)}
      <SelectField
        id="target-security"
        label={words.security}
        options={[
          ['starttls', words.securities.starttls],
          ['tls', words.securities.tls],
          ['none', words.securities.none],
        ]}
        value={draft.security}
        error={fault('mail.security')}
        change={security => set({ security, port: PORTS[security] })}
      />
      <NumberField
        id="target-port"
        label={words.port}
        min={1}
        max={65_535}
        value={draft.port}
        error={fault('mail.port')}
        change={port => set({ port })}
      />
      {text('username', false)}
      <TextField
        id="target-password"
        type="password"
        autoComplete="new-password"
        label={texts.login.password}
        help={isNew ? undefined : words.staysAsItIs}
        value={draft.password}
        error={fault('mail.password')}
        change={password => set({ password })}
      />
      {text('from', true)}
      <LongTextField
        id="target-to"
        label={words.to}
        help={words.toHelp}
        isRequired
        rows={2}
        value={draft.to}
        error={fault('mail.to')}
        change={to => set({ to })}
      />
    </>
  );
}

function WebhookFields({ draft, set, fault, isNew }: FieldsProps) {
  const { texts } = useWords();
  const words = texts.notifications;
  return (
    <>
      <TextField
        id="target-url"
        label={words.url}
        isRequired
        maxLength={2048}
        value={draft.url}
        error={fault('webhook.url')}
        change={url => set({ url })}
      />
      <TextField
        id="target-secret"
        type="password"
        autoComplete="new-password"
        label={words.secret}
        help={isNew ? words.secretHelp : words.staysAsItIs}
        isRequired={isNew}
        maxLength={1024}
        value={draft.secret}
        error={fault('webhook.secret')}
        change={secret => set({ secret })}
      />
    </>
  );
}
