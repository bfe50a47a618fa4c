import {
  Alert,
  Button,
  Dropdown,
  DropdownItem,
  DropdownList,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadLogo,
  MastheadMain,
  MastheadToggle,
  MenuToggle,
  Nav,
  NavItem,
  NavList,
  Page,
  PageSidebar,
  PageSidebarBody,
  PageToggleButton,
  SkipToContent,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from '@patternfly/react-core';
import MoonIcon from '@patternfly/react-icons/dist/esm/icons/moon-icon';
import SunIcon from '@patternfly/react-icons/dist/esm/icons/sun-icon';
import UserIcon from '@patternfly/react-icons/dist/esm/icons/user-icon';
import { type MouseEvent, type ReactNode, useEffect, useState } from 'react';
import { Link, NavLink, useLocation, useNavigate } from 'react-router';
import { useToasts } from './parts/toasts.tsx';
import { useSession } from './session.tsx';
import { isDark, setDark } from './settings.ts';
import type { Texts } from './texts/en.ts';
import { useWords } from './texts/index.tsx';

const MAIN = 'main';
/** Where to, what it is called, and what a role must be allowed for it to be of use. */
const MENU: readonly [string, keyof Texts['nav'], string?][] = [
  ['/', 'overview'],
  ['/vms', 'vms'],
  ['/files', 'files'],
  ['/import', 'import'],
  ['/schedules', 'schedules'],
  ['/tasks', 'tasks'],
  ['/nodes', 'nodes'],
  ['/pools', 'pools'],
  ['/events', 'events'],
  ['/audit', 'audit', 'audit.read'],
  ['/tags', 'tags'],
  ['/users', 'users', 'user.read'],
  ['/notifications', 'notifications', 'notification.manage'],
  ['/certificates', 'certificates', 'certificate.manage'],
  ['/settings', 'settings', 'settings.manage'],
];
/** For so long an interruption is no news: a browser connects anew by itself. */
const PATIENCE_MS = 5000;

export function Shell({ children }: { children: ReactNode }) {
  const { texts } = useWords();
  const skip = (event: MouseEvent) => {
    event.preventDefault();
    document.getElementById(MAIN)?.focus();
  };
  return (
    <Page
      masthead={<Head />}
      sidebar={<Menu />}
      isManagedSidebar
      mainContainerId={MAIN}
      mainTabIndex={-1}
      skipToContent={
        <SkipToContent href={`#${MAIN}`} onClick={skip}>
          {texts.skip}
        </SkipToContent>
      }
    >
      <Interruption />
      {children}
    </Page>
  );
}

function Head() {
  const { texts } = useWords();
  return (
    <Masthead>
      <MastheadMain>
        <MastheadToggle>
          <PageToggleButton isHamburgerButton aria-label={texts.menu} />
        </MastheadToggle>
        <MastheadBrand>
          <MastheadLogo component={props => <Link {...props} to="/" className="vk-brand" />}>
            {texts.product}
          </MastheadLogo>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isFullHeight>
          <ToolbarContent>
            <ToolbarItem align={{ default: 'alignEnd' }}>
              <ThemeButton />
            </ToolbarItem>
            <ToolbarItem>
              <AccountMenu />
            </ToolbarItem>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  );
}

function ThemeButton() {
  const { texts } = useWords();
  const [dark, set] = useState(isDark);
  const turn = () => {
    setDark(!dark);
    set(!dark);
  };
  return (
    <Button
      variant="plain"
      icon={dark ? <SunIcon /> : <MoonIcon />}
      aria-label={dark ? texts.account.light : texts.account.dark}
      onClick={turn}
    />
  );
}

function AccountMenu() {
  const { texts, language, choose } = useWords();
  const { session, logout } = useSession();
  const navigate = useNavigate();
  const { attempt } = useToasts();
  const [isOpen, setOpen] = useState(false);
  const { username } = session.user;
  return (
    <Dropdown
      isOpen={isOpen}
      onOpenChange={setOpen}
      onSelect={() => setOpen(false)}
      popperProps={{ position: 'right' }}
      shouldFocusToggleOnSelect
      shouldFocusFirstItemOnOpen
      toggle={ref => (
        <MenuToggle
          ref={ref}
          variant="plain"
          icon={<UserIcon />}
          aria-label={`${texts.account.menu}: ${username}`}
          isExpanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        />
      )}
    >
      <DropdownList>
        <DropdownItem isAriaDisabled description={texts.account.version(session.version)}>
          {texts.account.signedInAs(username, texts.roles[session.role] ?? session.role)}
        </DropdownItem>
        <DropdownItem onClick={() => void navigate('/account')}>{texts.account.title}</DropdownItem>
        <DropdownItem onClick={() => choose(language === 'en' ? 'ru' : 'en')}>
          <span lang={language === 'en' ? 'ru' : 'en'}>{texts.account.language}</span>
        </DropdownItem>
        <DropdownItem onClick={() => attempt(logout)}>{texts.account.logout}</DropdownItem>
      </DropdownList>
    </Dropdown>
  );
}

function Menu() {
  const { texts } = useWords();
  const { pathname } = useLocation();
  const { may } = useSession();
  return (
    <PageSidebar>
      <PageSidebarBody>
        <Nav aria-label={texts.menu}>
          <NavList>
            {MENU.filter(([, , right]) => right === undefined || may(right)).map(([path, name]) => {
              const isActive = path === '/' ? pathname === '/' : pathname.startsWith(path);
              return (
                <NavItem key={path} itemId={path} isActive={isActive}>
                  <NavLink to={path} end={path === '/'}>
                    {texts.nav[name]}
                  </NavLink>
                </NavItem>
              );
            })}
          </NavList>
        </Nav>
      </PageSidebarBody>
    </PageSidebar>
  );
}

function Interruption() {
  const { texts } = useWords();
  const { stream } = useSession();
  const [isLong, setLong] = useState(false);
  useEffect(() => {
    setLong(false);
    if (stream === 'open') return;
    const timer = setTimeout(() => setLong(true), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [stream]);
  return isLong ? <Alert variant="warning" isInline title={texts.live.waiting} role="status" /> : null;
}
