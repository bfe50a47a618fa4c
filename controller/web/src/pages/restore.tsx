import {
  Alert,
  Checkbox,
  Content,
  Form,
  FormGroup,
  FormSelect,
  FormSelectOption,
  Radio,
  TextInput,
} from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useNavigate, useSearchParams } from 'react-router';
import { AT_ONCE, answer, api, type BackupFile, begun, list, newKey, type Pool } from '../api/client.ts';
import { useAllNodes } from '../parts/all.ts';
import { Empty } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { PoolOptions } from '../parts/pool-options.tsx';
import { fileReason } from '../parts/reasons.ts';
import { Failure, Shown } from '../parts/shown.tsx';
import { Steps } from '../parts/steps.tsx';
import { useToasts } from '../parts/toasts.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { WhatIsIn } from '../parts/what-is-in.tsx';
import { useSession } from '../session.tsx';
import type { Texts } from '../texts/en.ts';
import { useWords } from '../texts/index.tsx';

export default function RestorePage() {
  const { texts } = useWords();
  const [params] = useSearchParams();
  const id = params.get('file') ?? '';
  const query = useQuery({
    queryKey: ['files', 'one', id],
    queryFn: () => answer(api.GET('/api/library/{id}/', { params: { path: { id } } })),
    enabled: id !== '',
  });
  return (
    <ViewPage title={texts.restore.title} about={query.data?.filename}>
      {id === '' ? (
        <Empty title={texts.restore.chooseFile}>
          <Link to="/files">{texts.files.title}</Link>
        </Empty>
      ) : (
        <Shown query={query}>
          {file => <RestoreWizard key={file.id} file={file} given={params.get('state') ?? ''} />}
        </Shown>
      )}
    </ViewPage>
  );
}

interface Choices {
  /** Number of the restore point; empty: the newest. */
  state: string;
  node: string;
  /** Empty: the former places. */
  datapool: string;
  keep_identity: boolean;
  verbose_name: string;
  start_on: boolean;
  instant: boolean;
  flatten: boolean;
  allow_foreign: boolean;
}

const DEFAULTS: Choices = {
  state: '',
  node: '',
  datapool: '',
  keep_identity: false,
  verbose_name: '',
  start_on: false,
  instant: false,
  flatten: false,
  allow_foreign: false,
};
const FLAGS = ['keep_identity', 'start_on', 'instant', 'flatten', 'allow_foreign'] as const;

/** As the API takes it; what is not chosen is left to it. */
function bodyOf(file: string, { node, state, datapool, verbose_name, ...flags }: Choices) {
  return {
    file,
    node,
    ...(state === '' ? {} : { state }),
    ...(datapool === '' ? {} : { datapool }),
    ...(flags.keep_identity || verbose_name === '' ? {} : { verbose_name }),
    ...Object.fromEntries(FLAGS.filter(flag => flags[flag]).map(flag => [flag, true])),
  };
}

interface StepProps {
  file: BackupFile;
  choices: Choices;
  set: (changes: Partial<Choices>) => void;
}

function RestoreWizard({ file, given }: { file: BackupFile; given: string }) {
  const { texts } = useWords();
  const words = texts.restore;
  const navigate = useNavigate();
  const { started } = useToasts();
  const refusal = fileReason('restore', file, useAsked());
  // what was filled in stays when the file cannot be restored for a moment
  const [isOpen, setOpen] = useState(refusal === undefined);
  if (refusal === undefined && !isOpen) setOpen(true);
  const [choices, setChoices] = useState<Choices>({ ...DEFAULTS, state: given });
  const [key] = useState(newKey);
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  const set = (changes: Partial<Choices>) => setChoices(before => ({ ...before, ...changes }));
  const isNamed = choices.keep_identity || choices.verbose_name !== '';
  const start = async () => {
    setBusy(true);
    try {
      const body = { ...bodyOf(file.id, choices), idempotency_key: key };
      started(await begun(api.POST('/api/domains/automated-restore/', { params: { query: AT_ONCE }, body })));
      await navigate('/tasks');
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  const refused = refusal !== undefined && <Alert isInline variant="warning" title={refusal} />;
  if (!isOpen) return refused;
  const step = { file, choices, set };
  return (
    <>
      {refused}
      <Steps
        label={words.title}
        submit={words.submit}
        isBusy={isBusy}
        act={() => void start()}
        cancel={() => void navigate(-1)}
        steps={[
          { key: 'point', name: words.point, isReady: true, content: <PointStep {...step} /> },
          {
            key: 'target',
            name: words.target,
            isReady: choices.node !== '',
            content: <TargetStep {...step} />,
          },
          { key: 'identity', name: words.identity, isReady: isNamed, content: <IdentityStep {...step} /> },
          {
            key: 'review',
            name: words.review,
            isReady: refusal === undefined,
            content: (
              <>
                {error !== undefined && <Failure error={error} />}
                <Content component="ul">
                  {said(file, choices, texts).map(text => (
                    <Content component="li" key={text}>
                      {text}
                    </Content>
                  ))}
                </Content>
              </>
            ),
          },
        ]}
      />
    </>
  );
}

/** What was chosen, in words. */
function said(file: BackupFile, choices: Choices, { restore: words }: Texts): string[] {
  return [
    `${words.file}: ${file.filename}`,
    `${words.point}: ${choices.state || words.newest}`,
    choices.keep_identity ? words.inPlace : `${words.asNew}: ${choices.verbose_name}`,
    choices.start_on ? words.start : '',
    choices.instant ? words.instant : '',
    choices.flatten ? words.flatten : '',
    choices.allow_foreign ? words.foreign : '',
  ].filter(text => text !== '');
}

function PointStep({ file, choices, set }: StepProps) {
  const { texts, format } = useWords();
  const words = texts.restore;
  const shown = useQuery({
    // read once: each reading opens the archive, and is in the audit
    queryKey: ['shown', file.id, choices.state, file.states.length],
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () => {
      const body = { file: file.id, ...(choices.state === '' ? {} : { state: choices.state }) };
      return answer(api.POST('/api/domains/show-backup/', { body }));
    },
  });
  return (
    <Form>
      <FormGroup label={words.point} fieldId="restore-state">
        <FormSelect id="restore-state" value={choices.state} onChange={(_event, state) => set({ state })}>
          <FormSelectOption value="" label={words.newest} />
          {file.states.toReversed().map(({ number, created }) => (
            <FormSelectOption
              key={number}
              value={String(number)}
              label={`${number}. ${format.time(created)} (${format.age(created)})`}
            />
          ))}
        </FormSelect>
      </FormGroup>
      <Shown query={shown}>{backup => <WhatIsIn backup={backup} />}</Shown>
    </Form>
  );
}

function TargetStep({ choices, set }: StepProps) {
  const { texts } = useWords();
  const words = texts.restore;
  const nodes = useAllNodes();
  const pools = useQuery({
    queryKey: ['pools', 'of', choices.node],
    queryFn: () =>
      list<Pool>(api.GET('/api/data-pools/', { params: { query: { node: choices.node, limit: 1000 } } })),
    enabled: choices.node !== '',
  });
  const working = (nodes.data?.results ?? []).filter(({ status }) => status === 'ACTIVE');
  return (
    <Shown query={nodes}>
      {() => (
        <Form>
          {working.length === 0 && <Alert isInline variant="warning" title={words.noNodes} />}
          <FormGroup label={texts.common.node} isRequired fieldId="restore-node">
            <FormSelect
              id="restore-node"
              value={choices.node}
              onChange={(_event, node) => set({ node, datapool: '' })}
            >
              <FormSelectOption value="" label={texts.none} />
              {working.map(({ id, verbose_name }) => (
                <FormSelectOption key={id} value={id} label={verbose_name} />
              ))}
            </FormSelect>
          </FormGroup>
          <FormGroup label={texts.common.pool} fieldId="restore-pool">
            <FormSelect
              id="restore-pool"
              value={choices.datapool}
              isDisabled={choices.node === ''}
              onChange={(_event, datapool) => set({ datapool })}
            >
              <FormSelectOption value="" label={words.former} />
              <PoolOptions pools={pools.data?.results} />
            </FormSelect>
          </FormGroup>
        </Form>
      )}
    </Shown>
  );
}

function IdentityStep({ file, choices, set }: StepProps) {
  const { texts } = useWords();
  const words = texts.restore;
  const { may } = useSession();
  return (
    <Form>
      <FormGroup role="radiogroup" isStack label={words.identity} fieldId="identity">
        <Radio
          id="identity-new"
          name="identity"
          label={words.asNew}
          description={words.asNewText}
          isChecked={!choices.keep_identity}
          onChange={() => set({ keep_identity: false })}
        />
        <Radio
          id="identity-kept"
          name="identity"
          label={words.inPlace}
          description={words.inPlaceText}
          isChecked={choices.keep_identity}
          onChange={() => set({ keep_identity: true })}
        />
      </FormGroup>
      {!choices.keep_identity && (
        <FormGroup label={words.name} isRequired fieldId="restore-name">
          <TextInput
            id="restore-name"
            isRequired
            maxLength={255}
            value={choices.verbose_name}
            onChange={(_event, verbose_name) => set({ verbose_name })}
          />
          {choices.verbose_name === '' && <div className="vk-small">{words.nameNeeded}</div>}
        </FormGroup>
      )}
      <FormGroup role="group" isStack label={texts.backup.options} fieldId="restore-options">
        <Checkbox
          id="restore-start"
          label={words.start}
          isChecked={choices.start_on}
          onChange={(_event, start_on) => set({ start_on })}
        />
        <Checkbox
          id="restore-instant"
          label={words.instant}
          description={words.instantText}
          isDisabled={file.compressed}
          isChecked={choices.instant}
          onChange={(_event, instant) => set({ instant })}
        />
        <Checkbox
          id="restore-flatten"
          label={words.flatten}
          isChecked={choices.flatten}
          onChange={(_event, flatten) => set({ flatten })}
        />
        {may('backup.restore_foreign') && (
          <Checkbox
            id="restore-foreign"
            label={words.foreign}
            description={words.foreignText}
            isChecked={choices.allow_foreign}
            onChange={(_event, allow_foreign) => set({ allow_foreign })}
          />
        )}
      </FormGroup>
    </Form>
  );
}
