// A reader can choose another theme than the system's: the pictures follow that of the page.
(() => {
    const page = document.documentElement;
    const darkFiles = document.querySelectorAll("picture > source");
    const follow = () => {
        const isDark = ["ayu", "coal", "navy"].some((theme) => page.classList.contains(theme));
        darkFiles.forEach((file) => { file.media = isDark ? "all" : "not all"; });
    };
    new MutationObserver(follow).observe(page, { attributeFilter: ["class"] });
    follow();
})();
