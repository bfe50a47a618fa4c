/** Making a scheduled task, or changing one, with a look at what it will do. */
import {
  ActionList,
  ActionListItem,
  Button,
  Form,
  FormFieldGroup,
  FormFieldGroupHeader,
} from '@patternfly/react-core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useState } from 'react';
import { useNavigate, useParams } from 'react-router';
import { ApiError, answer, api, newKey, type Schedule } from '../../api/client.ts';
import { timeZone } from '../../format.ts';
import { serverNow } from '../../live/server-time.ts';
import { CheckField, faultsOf, LongTextField, SelectField, TextField } from '../../parts/fields.tsx';
import { isWritten } from '../../parts/number.ts';
import { changesOf, useOpened } from '../../parts/opened.ts';
import { ViewPage } from '../../parts/page.tsx';
import { Failure, Shown } from '../../parts/shown.tsx';
import { useWords } from '../../texts/index.tsx';
import { ACTIONS, bodyOf, type Draft, draftOf, missingOf, newDraft } from './draft.ts';
import { HowFields } from './how-fields.tsx';
import { KeptFields } from './kept-fields.tsx';
import { LimitFields } from './limit-fields.tsx';
import { RetentionOfDraft, WouldDo } from './preview.tsx';
import { WhatFields } from './what-fields.tsx';
import { WhenFields } from './when-fields.tsx';

export default function ScheduleEditorPage() {
  const { texts } = useWords();
  const { id } = useParams();
  // what was kept of an earlier opening may be old
  const [opening] = useState(newKey);
  const query = useQuery({
    // what another one changes meanwhile does not change what is being written here
    queryKey: ['shown', 'schedule', id, opening],
    queryFn: () => answer(api.GET('/api/scheduled-tasks/{id}/', { params: { path: { id: id ?? '' } } })),
    enabled: id !== undefined,
    gcTime: 0,
  });
  // read anew it is another form
  const [version, setVersion] = useState(0);
  const title = id === undefined ? texts.schedules.make : texts.schedules.changeTitle;
  return (
    <ViewPage title={title} about={query.data?.verbose_name}>
      {id === undefined ? (
        <Editor first={newDraft(timeZone(), serverNow())} />
      ) : (
        <Shown query={query}>
          {schedule => (
            <Editor
              key={version}
              before={schedule}
              first={draftOf(schedule)}
              reload={() => void query.refetch().then(() => setVersion(version + 1))}
            />
          )}
        </Shown>
      )}
    </ViewPage>
  );
}

export interface FieldsProps {
  draft: Draft;
  set: (changes: Partial<Draft> | ((old: Draft) => Partial<Draft>)) => void;
  /** What is wrong with a field. */
  fault: (field: string) => string | undefined;
}

interface EditorProps {
  before?: Schedule;
  first: Draft;
  /** Shows it as it is now, without what was written here. */
  reload?: () => void;
}

function Editor({ before: shown, first, reload }: EditorProps) {
  const before = useOpened(shown);
  const { texts } = useWords();
  const words = texts.schedules;
  const navigate = useNavigate();
  const client = useQueryClient();
  const [draft, setDraft] = useState(first);
  const [key] = useState(newKey);
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  const refused = faultsOf(error);
  const missing = missingOf(draft);
  const fault = (field: string) => (missing.includes(field) ? texts.common.missing : refused(field));
  // what cannot be saved is not looked at either
  const [valid, setValid] = useState(first);
  const isValid = missing.length === 0 && isWritten(draft);
  if (isValid && valid !== draft) setValid(draft);
  const set: FieldsProps['set'] = changes =>
    setDraft(old => ({ ...old, ...(typeof changes === 'function' ? changes(old) : changes) }));
  const save = async (isOverOthers: boolean) => {
    if (isBusy || !isValid) return;
    setBusy(true);
    try {
      const { id } = await store(draft, before, { key, isOverOthers });
      await client.invalidateQueries({ queryKey: ['schedules'] });
      await navigate(`/schedules/${id}`);
    } catch (why) {
      setError(why);
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void save(false);
  };
  const fields = { draft, set, fault };
  return (
    <Form onSubmit={submit} isWidthLimited maxWidth="48rem">
      <TextField
        id="schedule-name"
        label={texts.common.name}
        isRequired
        maxLength={255}
        value={draft.verbose_name}
        error={fault('verbose_name')}
        change={verbose_name => set({ verbose_name })}
      />
      <LongTextField
        id="schedule-description"
        label={texts.common.description}
        rows={2}
        maxLength={4096}
        value={draft.description}
        error={fault('description')}
        change={description => set({ description })}
      />
      <SelectField
        id="schedule-action"
        label={words.action}
        options={ACTIONS.map(action => [action, words.actions[action] ?? action] as const)}
        value={draft.action}
        error={fault('action')}
        change={action => set({ action, entities: [] })}
      />
      <Section title={words.when}>
        <WhenFields {...fields} />
      </Section>
      <Section title={words.targets}>
        <WhatFields {...fields} />
      </Section>
      {draft.action !== 'scan' && (
        <Section title={words.how}>
          <HowFields {...fields} />
        </Section>
      )}
      {draft.action === 'backup' && (
        <Section title={words.kept}>
          <KeptFields {...fields} />
        </Section>
      )}
      <Section title={words.limits}>
        <LimitFields {...fields} />
      </Section>
      <CheckField
        id="schedule-enabled"
        label={words.byItself}
        isOn={draft.enabled}
        change={enabled => set({ enabled })}
      />
      <Section title={words.wouldDo}>
        <WouldDo body={bodyOf(valid, before)} />
        {before !== undefined && valid.action === 'backup' && (
          <RetentionOfDraft id={before.id} body={bodyOf(valid, before)} />
        )}
      </Section>
      {error !== undefined && <Failure error={error} />}
      {before !== undefined && error instanceof ApiError && error.key === 'schedule_changed' && (
        <ActionList className="vk-wrap">
          <ActionListItem>
            <Button variant="secondary" onClick={() => void save(true)}>
              {words.saveAllTheSame}
            </Button>
          </ActionListItem>
          <ActionListItem>
            <Button variant="link" onClick={reload}>
              {words.showAsItIs}
            </Button>
          </ActionListItem>
        </ActionList>
      )}
      <ActionList className="vk-wrap">
        <ActionListItem>
          <Button
            type="submit"
            isDisabled={isBusy || draft.verbose_name === '' || !isValid}
            isLoading={isBusy}
            spinnerAriaLabel={texts.loading}
          >
            {texts.common.save}
          </Button>
        </ActionListItem>
        <ActionListItem>
          <Button variant="link" onClick={() => void navigate(-1)}>
            {texts.common.cancel}
          </Button>
        </ActionListItem>
      </ActionList>
    </Form>
  );
}

interface Saving {
  /** Of a new one, which is made once. */
  key: string;
  /** Whatever somebody else has changed since it was opened. */
  isOverOthers: boolean;
}

function store(draft: Draft, before: Schedule | undefined, { key, isOverOthers }: Saving): Promise<Schedule> {
  const saved = (of: Draft) => ({
    ...bodyOf(of, before),
    verbose_name: of.verbose_name,
    enabled: of.enabled,
  });
  if (before === undefined)
    return answer(api.POST('/api/scheduled-tasks/', { body: { ...saved(draft), idempotency_key: key } }));
  // what others have changed meanwhile, and nobody here, stays
  const changes = changesOf(saved(draftOf(before)), saved(draft));
  const body = isOverOthers ? changes : { ...changes, modified: before.modified };
  return answer(api.PUT('/api/scheduled-tasks/{id}/', { params: { path: { id: before.id } }, body }));
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  const id = `section-${title.replaceAll(/\W+/g, '-')}`;
  return (
    <FormFieldGroup header={<FormFieldGroupHeader titleText={{ text: title, id }} />}>
      {children}
    </FormFieldGroup>
  );
}
