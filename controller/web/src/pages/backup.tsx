import {
  Checkbox,
  Content,
  Form,
  FormGroup,
  FormSelect,
  FormSelectOption,
  Radio,
} from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useLocation, useNavigate, useSearchParams } from 'react-router';
import { AT_ONCE, answer, api, begun, type Domain, type NodeRecord, newKey } from '../api/client.ts';
import { useAllNodes, useAllPools } from '../parts/all.ts';
import { Empty } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { PoolOptions } from '../parts/pool-options.tsx';
import { domainReason } from '../parts/reasons.ts';
import { Failure, Shown } from '../parts/shown.tsx';
import { Steps } from '../parts/steps.tsx';
import { useToasts } from '../parts/toasts.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

/** As the API takes them. */
const MOST_AT_ONCE = 200;

export default function BackupPage() {
  const { texts } = useWords();
  const [params] = useSearchParams();
  const { state } = useLocation();
  const given = (state as { ids?: string[] } | null)?.ids ?? [];
  const ids = [params.get('vm') ?? '', ...given].filter(id => id !== '').slice(0, MOST_AT_ONCE);
  const query = useQuery({
    queryKey: ['domains', 'some', ids],
    queryFn: () => domainsOf(ids),
  });
  return (
    <ViewPage title={texts.backup.title}>
      {ids.length === 0 ? (
        <Empty title={texts.backup.noVm}>
          <Link to="/vms">{texts.vms.title}</Link>
        </Empty>
      ) : (
        <Shown query={query}>{domains => <BackupWizard key={ids.join()} domains={domains} />}</Shown>
      )}
    </ViewPage>
  );
}

const AT_A_TIME = 8;

/** A few at a time, so that a page of them does not fill the controller's connections. */
async function domainsOf(ids: readonly string[]): Promise<Domain[]> {
  const domains: Domain[] = [];
  for (let start = 0; start < ids.length; start += AT_A_TIME) {
    const some = ids.slice(start, start + AT_A_TIME);
    const calls = some.map(id => answer(api.GET('/api/domains/{id}/', { params: { path: { id } } })));
    domains.push(...(await Promise.all(calls)));
  }
  return domains;
}

type Kind = 'full' | 'incremental' | 'increment';

interface Choices {
  kind: Kind;
  /** Empty: the default. */
  datapool: string;
  compress: boolean;
  hash_sum: boolean;
  protected: boolean;
  require_consistency: boolean;
}

const DEFAULTS: Choices = {
  kind: 'full',
  datapool: '',
  compress: false,
  hash_sum: false,
  protected: false,
  require_consistency: false,
};
const FLAGS = ['compress', 'hash_sum', 'protected', 'require_consistency'] as const;

/** As the API takes it; what is not chosen is left to it. */
function optionsOf({ kind, datapool, ...flags }: Choices) {
  return {
    ...(kind === 'incremental' ? { can_be_incremental: true } : {}),
    ...(kind === 'increment' ? { increment: true } : {}),
    ...(datapool === '' ? {} : { datapool }),
    ...Object.fromEntries(FLAGS.filter(flag => flags[flag]).map(flag => [flag, true])),
  };
}

function BackupWizard({ domains }: { domains: readonly Domain[] }) {
  const { texts } = useWords();
  const words = texts.backup;
  const navigate = useNavigate();
  const asked = useAsked();
  const { started } = useToasts();
  const [choices, setChoices] = useState(DEFAULTS);
  const [key] = useState(newKey);
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  const possible = domains.filter(domain => domainReason('backup', domain, asked) === undefined);
  const only = domains.length === 1 ? domains[0] : undefined;
  const nodes = useAllNodes();
  // where a node has no base data pool the default is none
  const lacking = (nodes.data?.results ?? []).filter(
    ({ id, base_datapool }) => base_datapool === null && possible.some(({ node }) => node.id === id),
  );
  const isPoolNeeded = lacking.length > 0;

  const start = async () => {
    setBusy(true);
    try {
      started(await backup(possible, choices, key));
      await navigate(only ? `/vms/${only.id}/tasks` : '/tasks');
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  return (
    <Steps
      label={words.title}
      submit={words.start}
      isBusy={isBusy}
      act={() => void start()}
      cancel={() => void navigate(-1)}
      steps={[
        {
          key: 'what',
          name: words.what,
          isReady: possible.length > 0,
          content: <Chosen domains={domains} />,
        },
        {
          key: 'where',
          name: words.where,
          isReady: !isPoolNeeded || choices.datapool !== '',
          content: (
            <ChoicesForm
              choices={choices}
              isPoolNeeded={isPoolNeeded}
              set={changes => setChoices({ ...choices, ...changes })}
            />
          ),
        },
        {
          key: 'review',
          name: words.review,
          isReady: true,
          content: (
            <>
              {error !== undefined && <Failure error={error} />}
              <Review domains={possible} choices={choices} nodes={nodes.data?.results ?? []} />
            </>
          ),
        },
      ]}
    />
  );
}

function backup(domains: readonly Domain[], choices: Choices, idempotency_key: string) {
  const options = optionsOf(choices);
  const [first] = domains;
  if (domains.length === 1 && first !== undefined)
    return begun(
      api.POST('/api/domains/backup/', {
        params: { query: AT_ONCE },
        body: { domain: first.id, ...options, idempotency_key },
      }),
    );
  const entity_ids = domains.map(({ id }) => id);
  return begun(
    api.POST('/api/domains/multi-manager/', {
      params: { query: AT_ONCE },
      body: { action: 'backup', entity_ids, options, idempotency_key },
    }),
  );
}

function Chosen({ domains }: { domains: readonly Domain[] }) {
  const { texts } = useWords();
  const asked = useAsked();
  return (
    <>
      <Content component="p">{texts.backup.of(domains.length)}</Content>
      <ul className="vk-list">
        {domains.map(domain => (
          <li key={domain.id}>
            <span className="vk-name">{domain.verbose_name}</span>{' '}
            <span className="vk-small">
              {domainReason('backup', domain, asked) ?? domain.node.verbose_name}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

interface ChoicesFormProps {
  choices: Choices;
  /** There is no default. */
  isPoolNeeded: boolean;
  set: (changes: Partial<Choices>) => void;
}

function ChoicesForm({ choices, isPoolNeeded, set }: ChoicesFormProps) {
  const { texts } = useWords();
  const words = texts.backup;
  const pools = useAllPools();
  const kinds: [Kind, string, string | undefined][] = [
    ['full', words.full, undefined],
    ['incremental', words.incremental, words.incrementalText],
    ['increment', words.increment, words.incrementText],
  ];
  const flags = {
    compress: words.compress,
    hash_sum: words.hash,
    protected: words.protect,
    require_consistency: words.consistent,
  };
  return (
    <Form>
      <FormGroup role="radiogroup" isStack label={words.kind} fieldId="kind">
        {kinds.map(([kind, label, description]) => (
          <Radio
            key={kind}
            id={`kind-${kind}`}
            name="kind"
            label={label}
            description={description}
            isChecked={choices.kind === kind}
            onChange={() => set({ kind })}
          />
        ))}
      </FormGroup>
      <FormGroup label={texts.common.pool} isRequired={isPoolNeeded} fieldId="backup-pool">
        <FormSelect
          id="backup-pool"
          value={choices.datapool}
          onChange={(_event, datapool) => set({ datapool })}
        >
          <FormSelectOption
            value=""
            label={
              isPoolNeeded
                ? words.choosePool
                : choices.kind === 'increment'
                  ? words.anyPool
                  : words.defaultPool
            }
          />
          <PoolOptions pools={pools.data?.results} />
        </FormSelect>
      </FormGroup>
      <FormGroup role="group" isStack label={words.options} fieldId="backup-options">
        {FLAGS.map(flag => (
          <Checkbox
            key={flag}
            id={`backup-${flag}`}
            label={flags[flag]}
            isChecked={choices[flag]}
            onChange={(_event, on) => set({ [flag]: on })}
          />
        ))}
      </FormGroup>
    </Form>
  );
}

interface ReviewProps {
  domains: readonly Domain[];
  choices: Choices;
  nodes: readonly NodeRecord[];
}

function Review({ domains, choices, nodes }: ReviewProps) {
  const { texts } = useWords();
  const words = texts.backup;
  const [first] = domains;
  const said = [
    domains.length === 1 && first ? first.verbose_name : words.of(domains.length),
    words[choices.kind],
    usePlace(domains, choices, nodes),
    choices.compress ? words.compress : '',
    choices.hash_sum ? words.hash : '',
    choices.protected ? words.protect : '',
    choices.require_consistency ? words.consistent : '',
  ];
  return (
    <Content component="ul">
      {said
        .filter(text => text !== '')
        .map(text => (
          <Content component="li" key={text}>
            {text}
          </Content>
        ))}
    </Content>
  );
}

/** Where the backups go, in words: also where that was left to the nodes. */
function usePlace(
  domains: readonly Domain[],
  { kind, datapool }: Choices,
  nodes: readonly NodeRecord[],
): string {
  const { texts } = useWords();
  const pools = useAllPools().data?.results ?? [];
  const nameOf = (wanted: string | null | undefined) =>
    pools.find(({ id }) => id === wanted)?.verbose_name ?? wanted ?? '';
  if (datapool !== '') return `${texts.common.pool}: ${nameOf(datapool)}`;
  if (kind === 'increment') return texts.backup.anyPool;
  const bases = nodes.filter(({ id }) => domains.some(({ node }) => node.id === id));
  const names = new Set(bases.map(({ base_datapool }) => nameOf(base_datapool)));
  return [texts.backup.defaultPool, [...names].join(', ')].filter(text => text !== '').join(': ');
}
