// Before the page is drawn: the theme that was chosen, if one was.
(function () {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (error) { /* no storage: the system's theme */ }
})();
